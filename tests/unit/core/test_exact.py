"""Exact sums against fractions."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.exact import deviation, from_units, mean, sum_to_units, to_units

UNIT = Fraction(1, 2**1074)
TINY, LARGEST = 5e-324, sys.float_info.max
# Half a unit in the last place above the largest double: from here on sums are infinite.
BEYOND = Fraction(LARGEST) + Fraction(2**970)

doubles = st.floats(allow_nan=False, allow_infinity=False)
more = settings(max_examples=200, deadline=None)


def is_nearest(found: float, exact: Fraction) -> bool:
    """Whether no double is nearer to a fraction, the even one where two are as near."""
    if abs(exact) >= BEYOND:
        return found == (math.inf if exact > 0 else -math.inf)
    distance = abs(Fraction(found) - exact)
    beside = [math.nextafter(found, math.inf), math.nextafter(found, -math.inf)]
    others = [abs(Fraction(x) - exact) for x in beside if math.isfinite(x)]
    even = Fraction(found) / Fraction(math.ulp(found)) % 2 == 0
    return all(distance < other or (distance == other and even) for other in others)


@more
@given(doubles)
def test_units_hold_every_double_exactly(value: float) -> None:
    """A double in units is the very number, and reads back as it was."""
    assert to_units(value) * UNIT == Fraction(value)
    assert from_units(to_units(value)) == value


@pytest.mark.parametrize(
    ("value", "error"),
    [(math.inf, OverflowError), (-math.inf, OverflowError), (math.nan, ValueError)],
)
def test_units_refuse_what_is_not_finite(value: float, error: type[Exception]) -> None:
    """NaN and infinities have no units."""
    with pytest.raises(error):
        to_units(value)


@more
@given(st.lists(doubles, max_size=20))
def test_sum_is_the_double_nearest_to_the_exact_sum(values: list[float]) -> None:
    """A sum is rounded once, to the nearest double, infinite beyond the largest."""
    exact = sum(map(Fraction, values), Fraction())
    assert is_nearest(from_units(sum(map(to_units, values))), exact)


@more
@given(st.lists(doubles, min_size=1, max_size=5), st.integers(1, 2**70))
def test_mean_is_the_double_nearest_to_the_exact_quotient(values: list[float], n: int) -> None:
    """A mean's quotient is rounded once, down into the subnormals and for counts beyond 2^53."""
    exact = sum(map(Fraction, values), Fraction()) / n
    assert is_nearest(mean(sum(map(to_units, values)), n), exact)


@pytest.mark.parametrize(
    ("values", "count", "expected"),
    [
        ([], 1, 0.0),
        ([1e16, 1.0, 1.0], 1, 10000000000000002.0),
        ([1e308, 1e308, -1e308, -1e308, 5e-324], 1, TINY),
        ([2.0**53, 1.0], 1, 2.0**53),  # a tie goes to the even one below
        ([2.0**53 + 2.0, 1.0], 1, 2.0**53 + 4.0),  # and to the even one above
        ([TINY], 2, 0.0),  # half of the smallest subnormal ties to zero
        ([TINY, TINY, TINY], 2, 2 * TINY),  # one and a half of it to two
        ([2.0**-1022], 3, float(Fraction(2.0**-1022) / 3)),
        ([LARGEST, 2.0**969], 1, LARGEST),
        ([LARGEST, 2.0**970], 1, math.inf),
        ([-LARGEST, -(2.0**970)], 1, -math.inf),
        ([LARGEST, LARGEST], 2, LARGEST),
        ([2.0**1000], 2**1100, 2.0**-100),
        ([1.0], 10**400, 0.0),
    ],
)
def test_rounding_keeps_ieee_754(values: list[float], count: int, expected: float) -> None:
    """Ties go to even, subnormals are kept, overflow is infinite, counts may be huge."""
    found = mean(sum(map(to_units, values)), count)
    assert (found, math.copysign(1, found)) == (expected, math.copysign(1, expected))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(st.floats(2.0**-500, 2.0**500), st.integers(0, 10**6).map(float)),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 10**9),
)
def test_deviation_is_the_root_of_exact_moments(values: list[float], times: int) -> None:
    """The standard deviation cancels nothing: within an ulp of the exact root."""
    squares = [float(Fraction(value) ** 2) for value in values]
    count = len(values) * times
    total = sum(map(Fraction, values)) * times
    spread = sum(map(Fraction, squares)) * times / count - (total / count) ** 2
    found = deviation(
        sum(map(to_units, values)) * times, sum(map(to_units, squares)) * times, count
    )
    if spread <= 0:
        assert found == 0.0
    else:
        low, high = math.nextafter(found, 0.0), math.nextafter(found, math.inf)
        assert Fraction(low) ** 2 <= spread <= Fraction(high) ** 2


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0], 0.0),
        ([1.0, 3.0], 1.0),
        ([0.0, 0.0], 0.0),
        ([1e8, 1e8 + 2], 1.0),
        ([0.0, 2.0**500], 2.0**499),
        ([0.0, 2.0**-500], 2.0**-501),
    ],
)
def test_deviation_of_plain_numbers_is_plain(values: list[float], expected: float) -> None:
    """Numbers whose deviation is a whole number give it."""
    units = sum(map(to_units, values))
    squares = sum(to_units(value * value) for value in values)
    assert deviation(units, squares, len(values)) == expected


def test_deviation_reads_negative_spread_as_zero() -> None:
    """Squares that were rounded down below the mean's square leave 0, not an error."""
    assert deviation(to_units(1.0), to_units(math.nextafter(1.0, 0.0)), 1) == 0.0


@more
@given(st.lists(doubles | st.floats(-1.0, 1.0, width=32)))
def test_sum_to_units_is_the_sum_of_units(values: list[float]) -> None:
    """Whichever way it goes, by the size of the values, the sum is the exact one."""
    assert sum_to_units(values) == sum(map(to_units, values))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_sum_to_units_takes_no_infinities(value: float) -> None:
    """They have no exact value."""
    with pytest.raises((OverflowError, ValueError)):
        sum_to_units([1.0, value])


def test_sum_to_units_of_what_is_beyond_the_common_scale() -> None:
    """The largest double overflows the scale, the smallest is no integer in it."""
    values = [LARGEST, TINY, -LARGEST, 2.0**-200, 2.0**-201]
    assert sum_to_units(values) * UNIT == sum(map(Fraction, values))
