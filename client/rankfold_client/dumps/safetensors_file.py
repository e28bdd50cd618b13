"""Tensors in a `.safetensors`, which stay in the file until they are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import safe_open

from rankfold_client.dumps.entries import Dump, Entry, Index, Kind, unread

_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def read(path: Path) -> Dump:
    """Return what the file holds."""
    dump = Dump(path)
    # It stays open, as long as an entry can be asked for its tensor.
    file: Any = safe_open(path, framework="pt", device="cpu")
    for name in file.keys():  # noqa: SIM118 - it is no mapping
        dump.add(name, Index(), _entry(file, name))
    return dump


def _entry(file: Any, name: str) -> Entry:
    dtype = str(file.get_slice(name).get_dtype())
    if dtype in _FLOATS:
        return Entry(Kind.FLOAT, _FLOATS[dtype], lambda: file.get_tensor(name))
    if dtype == "BOOL" or (dtype[0] in "IU" and dtype[1:].isdigit()):
        return Entry(Kind.OTHER, dtype.lower(), lambda: file.get_tensor(name))
    return unread(Kind.REFUSED, f"{dtype}, which is no float of 16, 32 or 64 bits")
