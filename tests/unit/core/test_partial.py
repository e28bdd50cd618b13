"""The invariants of a partial, and numbers in JSON."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rankfold.partial import (
    MAX_COUNT,
    Partial,
    PartialColumns,
    faults,
    number_from_json,
    number_to_json,
)

CLEAN = Partial(valid=8, count=0, max=0.0, sum=0.0)


def test_partial_of_nothing_is_the_identity_and_has_no_fault() -> None:
    """An all-masked microbatch has no maximum and is allowed."""
    assert Partial(valid=0, count=0, max=None, sum=0.0).faults() == []


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"valid": MAX_COUNT, "total": MAX_COUNT},
        {"count": 8, "nonfinite": 8, "max": None},
        # Finite values whose difference overflows are so many units apart.
        {"count": 8, "nonfinite": 8, "max": None, "sum_sq": 0.0, "ulp_max": 7},
        {"count": 3, "nonfinite": 1, "max": 0.5, "sum": 1.0, "sum_sq": 0.5, "ulp_max": 4},
        {"count": 1, "max": 0.0, "sum": 0.0, "sum_sq": 0.0},
        {"sum_sq": 0.0, "ulp_max": 0, "total": 8},
    ],
)
def test_partial_that_may_be_folded_has_no_fault(fields: dict[str, Any]) -> None:
    """What the contract allows is allowed, at its edges too."""
    values = {"valid": 8, "count": 0, "max": 0.0, "sum": 0.0, **fields}
    assert Partial(**values).faults() == []


@pytest.mark.parametrize(
    ("fields", "faulty"),
    [
        ({"valid": -1, "max": None}, ["valid", "count"]),
        ({"valid": MAX_COUNT + 1}, ["valid"]),
        ({"count": -1}, ["count", "nonfinite"]),
        ({"nonfinite": -1}, ["nonfinite"]),
        ({"count": 9, "max": 0.5, "sum": 0.5}, ["count"]),
        ({"nonfinite": 1}, ["nonfinite"]),
        ({"max": None}, ["max"]),
        ({"count": 8, "nonfinite": 8, "max": 0.5}, ["max"]),
        ({"count": 8, "nonfinite": 8, "max": None, "sum": 0.5}, ["sum"]),
        ({"count": 8, "nonfinite": 8, "max": None, "sum_sq": 0.5}, ["sum_sq"]),
        ({"valid": 0, "max": None, "sum": 0.5}, ["sum"]),
        ({"count": 1, "max": -0.5, "sum": 0.5}, ["max"]),
        ({"count": 1, "max": math.nan, "sum": 0.5}, ["max"]),
        ({"count": 1, "max": math.inf, "sum": 0.5}, ["max"]),
        ({"count": 1, "max": 0.5, "sum": -0.5}, ["sum"]),
        ({"count": 1, "max": 0.5, "sum": math.nan}, ["sum"]),
        ({"count": 1, "max": 0.5, "sum": math.inf}, ["sum"]),
        ({"max": 0.5}, ["max"]),
        ({"sum": 0.5}, ["sum"]),
        ({"count": 1, "max": 0.5, "sum": 0.5, "sum_sq": -1.0}, ["sum_sq"]),
        ({"count": 1, "max": 0.5, "sum": 0.5, "sum_sq": math.inf}, ["sum_sq"]),
        ({"sum_sq": 0.5}, ["sum_sq"]),
        ({"total": 7}, ["total"]),
        ({"total": MAX_COUNT + 1}, ["total"]),
        ({"ulp_max": -1}, ["ulp_max"]),
        ({"ulp_max": MAX_COUNT + 1}, ["ulp_max"]),
    ],
)
def test_partial_names_the_field_of_each_fault(fields: dict[str, Any], faulty: list[str]) -> None:
    """Each broken invariant is found, and nothing else."""
    values = {"valid": 8, "count": 0, "max": 0.0, "sum": 0.0, **fields}
    assert [field for field, _ in Partial(**values).faults()] == faulty


def test_faults_say_both_sides() -> None:
    """A reason names the numbers that contradict each other."""
    assert faults(8, 9, 0, 0.5, 0.5) == [("count", "count 9 is over valid 8")]


def test_columns_start_empty() -> None:
    """A report without partials has columns of no length and no optional ones."""
    columns = PartialColumns()
    assert (len(columns), columns.worst, columns.sum_sq) == (0, None, None)


@pytest.mark.parametrize(
    ("number", "json"),
    [(0.5, 0.5), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (0.0, 0.0)],
)
def test_numbers_go_to_json_and_back(number: float, json: float | str) -> None:
    """Non-finite numbers are the contract's words, both ways."""
    assert number_to_json(number) == json
    assert number_from_json(json) == number


def test_nan_goes_to_json_and_back() -> None:
    """NaN is a word too."""
    assert number_to_json(math.nan) == "NaN"
    assert math.isnan(number_from_json("NaN"))


def test_negative_zero_comes_from_json_as_zero() -> None:
    """There is one zero, so that folds have the same bits in any order."""
    assert math.copysign(1.0, number_from_json(-0.0)) == 1.0
