"""Columns of numbers as bytes, as narrow as their values allow; JSON where none is wide enough."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, cast

from pydantic_core import to_json

# Of the codes of `struct` for integers that are stored.
WIDEST = "q"

_HEAD = struct.Struct("<cI")


def encode(value: Any) -> bytes:
    """Return a value as compact JSON; doubles come back exactly, NaN and infinities too."""
    return to_json(value, inf_nan_mode="constants")


def narrow(values: Sequence[int]) -> tuple[str, bytes]:
    """Return integers in the narrowest of four widths that takes them all, and its code.

    Raises:
        TypeError: one is no integer.
        struct.error: likewise, or one is beyond 64 bits.
    """
    try:
        return "B", bytes(values)  # twice as fast as `struct`
    except ValueError:  # some are negative or over 255
        return _wide(values)


def _wide(values: Sequence[int]) -> tuple[str, bytes]:
    for code in "HI":
        try:
            return code, pack_as(code, values)
        except struct.error:
            continue
    return WIDEST, pack_as(WIDEST, values)


def pack_as(code: str, values: Sequence[float]) -> bytes:
    """Return a column in a code of `struct`, low bytes first.

    Raises:
        struct.error: a value does not fit.
    """
    return struct.pack(f"<{len(values)}{code}", *values)


def unpack_as(code: str, count: int, data: bytes, at: int = 0) -> tuple[Any, ...]:
    """Return what `pack_as` was given."""
    return struct.unpack_from(f"<{count}{code}", data, at)


def integers(values: Sequence[int | None]) -> bytes:
    """Return a column of integers; None and those beyond 64 bits make it larger, not wrong."""
    try:
        code, data = narrow(cast("Sequence[int]", values))
    except (TypeError, struct.error):
        return anything(values)
    return _HEAD.pack(code.encode(), len(data)) + data


def doubles(values: Sequence[float | None]) -> bytes:
    """Return a column of doubles, exact to the bit; None makes it larger, not wrong."""
    try:
        data = pack_as("d", cast("Sequence[float]", values))
    except struct.error:
        return anything(values)
    return _HEAD.pack(b"d", len(data)) + data


def anything(values: Sequence[Any]) -> bytes:
    """Return a column of what JSON holds."""
    data = encode(values)
    return _HEAD.pack(b"j", len(data)) + data


def exact(values: Sequence[int]) -> bytes:
    """Return a column of exact sums, as odd parts and powers of two.

    A sum is over a thousand bits long and ends in zeros: doubles have at most 53 others.
    """
    odd, shifts = zip(*map(split, values), strict=True) if values else ((), ())
    return integers(odd) + integers(shifts)


def split(value: int) -> tuple[int, int]:
    """Return an exact sum as an odd part, or 0, and a power of two."""
    shift = max((value & -value).bit_length() - 1, 0)
    return value >> shift, shift


class ColumnReader:
    """Takes columns off the front of bytes, in the order in which they were written."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def column(self) -> list[Any]:
        """Return the next column."""
        code, size = _HEAD.unpack_from(self._data, self._at)
        start = self._at + _HEAD.size
        self._at = start + size
        data = self._data[start : self._at]
        if code == b"j":
            values: list[Any] = json.loads(data)
            return values
        return [*unpack_as(code.decode(), size // struct.calcsize(b"<" + code), data)]

    def exact(self) -> list[int]:
        """Return the next column of exact sums."""
        odd, shifts = self.column(), self.column()
        return [value << shift for value, shift in zip(odd, shifts, strict=True)]
