"""Tensors in an `.npz` of NumPy: what they are is read from headers, each array when it is wanted.

Large arrays are unpacked into a temporary file and mapped, because in the archive they are
compressed or begin at any byte, where no number may. Pickled arrays are never unpickled.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy
import torch
from numpy.lib import format as npy
from torch import Tensor

from rankfold_client.dumps.entries import Dump, DumpError, Entry, Index, Kind, unread

# Larger arrays are in a file, in bytes.
MOST_IN_MEMORY = 1 << 24

_SUFFIX = ".npy"
_FLOAT_BYTES = (2, 4, 8)
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_REFUSALS = {
    "O": "pickled Python objects, which are not read; save arrays of numbers",
    "V": "bytes without a type, as NumPy writes bfloat16; save float32, or .safetensors",
    "c": "complex numbers",
    "f": "floats of more than 64 bits; save float64",
}


def read(path: Path) -> Dump:
    """Return what the file holds."""
    dump = Dump(path)
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            named = member.endswith(_SUFFIX)
            entry = _entry(archive, path, member) if named else unread(Kind.OTHER, "no array")
            dump.add(member.removesuffix(_SUFFIX), Index(), entry)
    return dump


def _entry(archive: zipfile.ZipFile, path: Path, member: str) -> Entry:
    with archive.open(member) as file:
        _, _, dtype = header(file, member)
    return entry_of(dtype, lambda: _array(path, member))


def entry_of(dtype: numpy.dtype, load: Callable[[], Tensor]) -> Entry:
    """Return the entry of an array of a dtype.

    Args:
        dtype: as its header says.
        load: reads it.
    """
    if dtype.kind == "f" and dtype.itemsize in _FLOAT_BYTES:
        return Entry(Kind.FLOAT, dtype.name, load)
    if dtype.kind in _REFUSALS:
        return unread(Kind.REFUSED, _REFUSALS[dtype.kind])
    return Entry(Kind.OTHER, dtype.name, load)


def header(file: Any, member: str) -> tuple[tuple[int, ...], bool, numpy.dtype]:
    """Return the shape, whether columns come first, and the dtype."""
    version = npy.read_magic(file)
    read_header = _HEADERS.get(version)
    if read_header is None:
        raise ValueError(f"{member!r} has the unusual version {version} of the format")
    found: tuple[tuple[int, ...], bool, numpy.dtype] = read_header(file)
    return found


def _array(path: Path, member: str) -> Tensor:
    with zipfile.ZipFile(path) as archive, archive.open(member) as file:
        size = archive.getinfo(member).file_size
        if size > MOST_IN_MEMORY:
            array = _unpacked(file, member, size)
        else:
            array = npy.read_array(file, allow_pickle=False)
        if file.read(1):  # to the end, where the checksum is looked at
            raise ValueError(f"{member!r} holds more than its header says")
    if not array.dtype.isnative:
        array = array.byteswap(inplace=True).view(array.dtype.newbyteorder("="))
    return torch.from_numpy(array)


def _unpacked(file: IO[bytes], member: str, size: int) -> numpy.ndarray:
    """Return an array in a file that has no name, and is gone with the array."""
    shape, columns_first, dtype = header(file, member)
    try:
        with tempfile.TemporaryFile() as room:
            shutil.copyfileobj(file, room)
            if room.tell() != math.prod(shape) * dtype.itemsize:
                raise ValueError(f"{member!r} does not hold what its header says")
            return numpy.memmap(room, dtype, "r+", shape=shape, order="F" if columns_first else "C")
    except OSError as error:
        raise DumpError(
            f"{member!r}, {size} bytes, cannot be unpacked into {tempfile.gettempdir()}: "
            f"{error.strerror or error}; let TMPDIR name a folder with that much room, or save "
            ".safetensors, which is compared where it is"
        ) from error
