"""Doubles as bit patterns and integers, because float arithmetic lies under flush-to-zero.

Where a thread flushes subnormals, `5e-324 == 0.0` is true and adding or scaling loses what is
small. Patterns are ordered like the non-negative doubles that they stand for, and as integers
in units of 2**-1074 they add exactly.
"""

from __future__ import annotations

import struct
import sys

from rankfold import exact

_SUBNORMAL = 5e-324
_SMALLEST_NORMAL = sys.float_info.min
_FRACTION = (1 << 52) - 1
_FLOAT_FRACTION = (1 << 23) - 1


def flushes_subnormals() -> bool:
    """Return whether this thread reads or writes subnormals as zero."""
    return _SUBNORMAL == 0.0 or _SMALLEST_NORMAL * 0.5 == 0.0


def double_bits(value: float) -> int:
    """Return the bit pattern of a double as an unsigned integer."""
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return bits


def double(bits: int) -> float:
    """Return the double of a bit pattern; only the low 64 bits count."""
    value: float = struct.unpack("<d", struct.pack("<Q", bits & (1 << 64) - 1))[0]
    return value


def double_of_single(bits: int) -> float:
    """Return, as a double, the float32 of a bit pattern; only the low 32 bits count.

    A subnormal float32 is a normal double, so the answer is right under flush-to-zero too.
    """
    bits &= (1 << 32) - 1
    magnitude = bits & (1 << 31) - 1
    if magnitude > _FLOAT_FRACTION:
        value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
        return value
    tiny = magnitude * 2.0**-149
    return -tiny if bits >> 31 else tiny


def units(bits: int) -> int:
    """Return a non-negative double, by its pattern, as an integer in units of 2**-1074.

    An infinity counts as 2**1024, which is above every double.
    """
    exponent, fraction = bits >> 52, bits & _FRACTION
    return fraction if exponent == 0 else (fraction | 1 << 52) << (exponent - 1)


def steps(a: int, b: int, width: int) -> int:
    """Return how many numbers of a format of that width lie between two patterns.

    0 where either is not finite.
    """
    sign = 1 << width - 1
    infinity = 0x7FF << 52 if width == 64 else 0xFF << 23
    x, y = a & sign - 1, b & sign - 1
    if max(x, y) >= infinity:
        return 0
    return x + y if (a ^ b) & sign else abs(x - y)


def nearest_double(total: int) -> float:
    """Return the double nearest to a sum in units of 2**-1074.

    Beyond the doubles it is the largest of them, because a reported sum must be finite.
    """
    if total <= _FRACTION:
        return double(total)
    return min(exact.from_units(total), sys.float_info.max)
