"""Tensors in a `.safetensors`, which stay in the file until they are compared."""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from rankfold_client.dumps.entries import Dump, Entry, Index, Kind, unread

_LENGTH = 8
_FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_OTHERS = {
    "BOOL": torch.bool,
    **{f"I{bits}": getattr(torch, f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"U{bits}": getattr(torch, f"uint{bits}") for bits in (8, 16, 32, 64)},
}


def read(path: Path) -> Dump:
    """Return what the file holds."""
    safe_open(path, framework="np")  # the library finds damage
    with path.open("rb") as file:
        # Read-only: the library's mapping for torch may not be larger than memory.
        held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    start = _LENGTH + int.from_bytes(held[:_LENGTH], "little")
    header: dict[str, Any] = json.loads(held[_LENGTH:start])
    header.pop("__metadata__", None)
    dump = Dump(path)
    for name, told in header.items():
        dump.add(name, Index(), _entry(held, start, told))
    return dump


def _entry(held: mmap.mmap, start: int, told: dict[str, Any]) -> Entry:
    kind = told["dtype"]
    dtype = (_FLOATS | _OTHERS).get(kind)
    if dtype is None:
        return unread(Kind.REFUSED, f"{kind}, which is no float of 16, 32 or 64 bits")

    def load() -> Tensor:
        shape, (begin, _) = told["shape"], told["data_offsets"]
        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=dtype)
        found = torch.frombuffer(held, dtype=dtype, count=count, offset=start + begin)
        return found.view(shape)

    if kind in _FLOATS:
        return Entry(Kind.FLOAT, str(dtype).removeprefix("torch."), load)
    return Entry(Kind.OTHER, kind.lower(), load)
