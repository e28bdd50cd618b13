"""Exact sums of doubles as integers, rounded once when they are read.

Every finite double is an integer multiple of 2**-1074, the smallest subnormal (IEEE 754-2019,
binary64). An exact sum is that integer: adding is integer addition, so it is associative,
commutative and loses nothing; reading divides once, and Python's integer division rounds
correctly (half to even).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

UNIT_EXPONENT = 1074

# Log-probs and what is summed over them are multiples of 2**-200 as a rule: float32 ends at
# 2**-149. Scaled by that they are small integers, which add up several times faster.
_COMMON_EXPONENT = 200
_COMMON_SCALE = 2.0**_COMMON_EXPONENT


def to_units(value: float) -> int:
    """Return a finite double, exactly, in units of 2**-1074.

    Raises:
        OverflowError: `value` is infinite.
        ValueError: `value` is NaN.
    """
    if value == 0.0:
        return 0
    numerator, denominator = value.as_integer_ratio()
    # The denominator is 2**k with k <= 1074, so the quotient of units is a plain shift.
    return numerator << (UNIT_EXPONENT + 1 - denominator.bit_length())


def sum_to_units(values: Iterable[float]) -> int:
    """Return the exact sum of finite doubles in units of 2**-1074.

    Raises:
        OverflowError: a value is infinite.
        ValueError: a value is NaN.
    """
    nonzero = list(filter(None, values))
    scaled = [value * _COMMON_SCALE for value in nonzero]  # exact, or an infinity
    if all(map(float.is_integer, scaled)):
        return sum(map(int, scaled)) << (UNIT_EXPONENT - _COMMON_EXPONENT)
    return sum(map(to_units, nonzero))


def from_units(units: int) -> float:
    """Return the double nearest to an exact sum; an infinity where it is beyond the doubles."""
    return mean(units, 1)


def mean(units: int, count: int) -> float:
    """Return the double nearest to the exact sum divided by `count`, rounded once.

    Args:
        units: the sum in units of 2**-1074.
        count: a positive integer of any size.
    """
    try:
        return units / (count << UNIT_EXPONENT)
    except OverflowError:
        return math.inf if units > 0 else -math.inf


def deviation(units: int, units_of_squares: int, count: int) -> float:
    """Return the population standard deviation from exact moments.

    The square root of (sum of squares) / n - ((sum) / n)**2, with the subtraction done exactly,
    so that nothing cancels; what the rounding of the reported squares left below 0 reads as 0.

    Args:
        units: the sum, in units of 2**-1074.
        units_of_squares: the sum of squares, in the same units.
        count: how many values were summed, at least 1.
    """
    spread = (units_of_squares * count << UNIT_EXPONENT) - units * units
    if spread <= 0:
        return 0.0
    # sqrt(spread / (count * 2**1074)**2). The root of the leading 256 bits has 75 more than a
    # double holds, and takes a tenth of the time of the root of them all.
    shift = 256 - spread.bit_length() & -2
    root = math.isqrt(spread << shift if shift > 0 else spread >> -shift)
    exponent = UNIT_EXPONENT + shift // 2
    return root / (count << exponent) if exponent > 0 else (root << -exponent) / count
