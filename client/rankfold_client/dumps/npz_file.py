"""Tensors in an `.npz` of NumPy: what they are is read from headers, each array when it is wanted.

Pickled arrays are never unpickled.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy
import torch
from numpy.lib import format as npy
from torch import Tensor

from rankfold_client.dumps.entries import Dump, Entry, Index, Kind, unread

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
    dtype = _dtype(archive, member)
    if dtype.kind == "f" and dtype.itemsize in _FLOAT_BYTES:
        return Entry(Kind.FLOAT, dtype.name, lambda: _array(path, member))
    if dtype.kind in _REFUSALS:
        return unread(Kind.REFUSED, _REFUSALS[dtype.kind])
    return Entry(Kind.OTHER, dtype.name, lambda: _array(path, member))


def _dtype(archive: zipfile.ZipFile, member: str) -> numpy.dtype:
    with archive.open(member) as file:
        version = npy.read_magic(file)
        header = _HEADERS.get(version)
        if header is None:
            raise ValueError(f"{member!r} has the unusual version {version} of the format")
        _, _, dtype = header(file)
    return dtype


def _array(path: Path, member: str) -> Tensor:
    with zipfile.ZipFile(path) as archive, archive.open(member) as file:
        array = npy.read_array(file, allow_pickle=False)
        if file.read(1):  # to the end, where the checksum is looked at
            raise ValueError(f"{member!r} holds more than its header says")
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
