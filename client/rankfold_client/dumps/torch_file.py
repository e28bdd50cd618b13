"""Tensors in a `.pt`, alone or in dicts and lists; nothing in it is run, and objects are refused.

A list's index is the microbatch; in a list of lists, the iteration and the microbatch.
"""

from __future__ import annotations

import mmap
import pickle
import re
import sys
import zipfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

from rankfold_client.dumps.entries import UNNAMED, Dump, DumpError, Entry, Index, Kind, unread
from rankfold_client.operands import FLOATS

MOST_NESTED = 20
_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_COMPILER = "torch._dynamo"
_GLOBAL = re.compile(r"GLOBAL (\S+)")


def read(path: Path) -> Dump:
    """Return what the file holds."""
    try:
        found = _load(path)
    except pickle.UnpicklingError as error:
        # torch names there what it was about to call.
        named = _GLOBAL.search(str(error))
        what = f"objects ({named[1]})" if named else "something"
        raise DumpError(
            f"it holds {what} other than tensors in dicts and lists, or is damaged; reading "
            "objects would run code that the file names, so save {name: tensor} with torch.save"
        ) from error
    dump = Dump(path)
    _walk(dump, found, (), ())
    return dump


def _load(path: Path) -> object:
    # In the old format tensors are read at once, into memory.
    mapped = zipfile.is_zipfile(path)
    if mapped:
        _check_room(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError:
        if _COMPILER in sys.modules:
            raise
    # Jagged tensors are refused where the compiler is not there, which takes long to import.
    import_module(_COMPILER)
    return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)


def _check_room(path: Path) -> None:
    """Refuse a file that is too large for torch, which maps it as if it were to be changed."""
    with path.open("rb") as file:
        try:
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY).close()
        except OSError as error:
            raise DumpError(
                f"its {path.stat().st_size} bytes are more than the system lets torch map "
                f"({error.strerror}): save .safetensors, or set vm.overcommit_memory to 1"
            ) from error


def _walk(dump: Dump, value: object, names: tuple[str, ...], places: tuple[int, ...]) -> None:
    """Add all that is in a value, which was found under these names and list indices."""
    if len(names) + len(places) > MOST_NESTED:
        raise DumpError("dicts and lists in it are nested too deep: save {name: tensor}")
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _walk(dump, inner, (*names, str(name)), places)
    elif isinstance(value, list | tuple) and not (value and isinstance(value[0], _PLAIN)):
        for place, inner in enumerate(value):
            _walk(dump, inner, names, (*places, place))
    else:
        _add(dump, "/".join(names) if names else UNNAMED, places, _entry(value))


def _add(dump: Dump, name: str, places: tuple[int, ...], entry: Entry) -> None:
    if len(places) > len(Index._fields):
        if name in dump.series:
            return  # said already
        deep = "lists in lists of lists; use one level, or two for iterations and microbatches"
        places, entry = (), unread(Kind.REFUSED, deep)
    # One list is of the microbatches of one iteration.
    dump.add(name, Index(*places) if len(places) != 1 else Index(0, places[0]), entry)


def _entry(value: object) -> Entry:
    if isinstance(value, Tensor):
        what = str(value.dtype).removeprefix("torch.")
        if value.dtype in FLOATS:
            return Entry(Kind.FLOAT, what, lambda: value)
        if value.is_floating_point() or value.is_complex():
            return unread(Kind.REFUSED, f"{what}, which is no float of 16, 32 or 64 bits")
        return Entry(Kind.OTHER, what, lambda: value)
    if isinstance(value, list | tuple) and any(isinstance(each, float) for each in value):
        return unread(Kind.REFUSED, "a list of Python numbers; save a tensor of them")
    return unread(Kind.OTHER, type(value).__name__)
