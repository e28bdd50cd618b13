"""Columns of numbers as bytes, as narrow as their values allow; JSON where none is wide enough."""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Sequence
from typing import Any

_HEAD = struct.Struct("<cI")
_encode = json.JSONEncoder(separators=(",", ":")).encode


def encode(value: Any) -> bytes:
    """Return a value as compact JSON; doubles come back exactly, NaN and infinities too."""
    return _encode(value).encode()


def little_endian(column: array[Any]) -> array[Any]:
    """Return a column in the byte order of what is stored, or back again."""
    if sys.byteorder == "big":
        column.byteswap()
    return column


def integers(values: Sequence[int | None]) -> bytes:
    """Return a column of integers; None and those beyond 64 bits make it larger, not wrong."""
    return _column("BHIq", values)


def doubles(values: Sequence[float | None]) -> bytes:
    """Return a column of doubles, exact to the bit; None makes it larger, not wrong."""
    return _column("d", values)


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


def _column(codes: str, values: Sequence[Any]) -> bytes:
    """Return a column in the first of these codes of `array` that takes every value."""
    for code in codes:
        try:
            data = little_endian(array(code, values)).tobytes()
        except OverflowError:
            continue
        except TypeError:
            break
        return _HEAD.pack(code.encode(), len(data)) + data
    return anything(values)


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
        column: array[Any] = array(code.decode())
        column.frombytes(data)
        return little_endian(column).tolist()

    def exact(self) -> list[int]:
        """Return the next column of exact sums."""
        odd, shifts = self.column(), self.column()
        return [value << shift for value, shift in zip(odd, shifts, strict=True)]
