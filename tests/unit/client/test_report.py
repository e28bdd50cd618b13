from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.partial import Partial, Worst
from rankfold_client.items import OPEN, Item, commit_item, pack, partial_item, scalar_item, size_of
from rankfold_client.report import encode

HEADER = {"project": "p", "run": "r", "attempt": 0, "rank": 3}
CLEAN = Partial(valid=4, count=0, max=0.0, sum=0.0)
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 1e16, 5e-324, 0.1])
SIZES = st.floats(min_value=0.0, allow_infinity=False, exclude_min=True)


def told(*items: Item) -> dict[str, Any]:
    """Return what a report of these items says."""
    found: dict[str, Any] = json.loads(encode(HEADER, [pack(item) for item in items]).raw)
    return found


def bits(number: float | str) -> str:
    """Return all of a double, with its sign, of one that travels by its name too."""
    return float(number).hex()


def test_report_without_items_is_its_header() -> None:
    """A rank's first word is a report with nothing but its header."""
    assert told(OPEN) == HEADER


def test_report_says_items_as_columns() -> None:
    """Partials, scalars and commits become columns of equal length in the order of the items."""
    full = Partial(
        valid=4, count=2, max=0.5, sum=0.75, nonfinite=1, sum_sq=0.3, ulp_max=9, total=6,
        worst=Worst((1, 2), math.nan, -math.inf, 0, token_id=7, sample="x"),
    )  # fmt: skip
    items = [
        partial_item("s", 12, 0, CLEAN),
        scalar_item("k", 12, 0, math.inf, 512, "mean", is_global=False),
        partial_item("t", 12, 1, full),
        commit_item(12, 2),
        scalar_item("g", 12, 0, 0.25, 1, None, is_global=True),
    ]
    worst = {"position": [1, 2], "a": "NaN", "b": "-Infinity", "ulp": 0, "token_id": 7}
    assert told(*items) == HEADER | {
        "partials": {
            "series": ["s", "t"],
            "iteration": [12, 12],
            "microbatch": [0, 1],
            "valid": [4, 4],
            "count": [0, 2],
            "nonfinite": [0, 1],
            "max": [0.0, 0.5],
            "sum": [0.0, 0.75],
            "sum_sq": [None, 0.3],
            "ulp_max": [None, 9],
            "total": [None, 6],
            "worst": [None, worst | {"sample": "x"}],
        },
        "scalars": {
            "key": ["k", "g"],
            "iteration": [12, 12],
            "microbatch": [0, 0],
            "value": ["Infinity", 0.25],
            "weight": [512, 1],
            "rule": ["mean", None],
            "global": [False, True],
        },
        "commits": {"iteration": [12], "microbatches": [2]},
    }


def test_report_leaves_out_columns_that_nobody_filled() -> None:
    """An optional column without a single value is not sent."""
    partials = told(partial_item("s", 0, 0, CLEAN))["partials"]
    assert not {"sum_sq", "ulp_max", "total", "worst"} & partials.keys()


@given(st.lists(st.tuples(FLOATS, FLOATS, SIZES), min_size=1), st.booleans())
def test_report_says_every_double_exactly(
    numbers: list[tuple[float, float, float]], beside_a_clean_one: bool
) -> None:
    """What is read back has the same bits, whatever its neighbours are, and NaN its name."""
    partials = [
        Partial(valid=1, count=1, max=size, sum=size, worst=Worst((0, 0), a, b, 1))
        for a, b, size in numbers
    ] + [CLEAN] * beside_a_clean_one
    sent = told(*(partial_item("s", 0, n, p) for n, p in enumerate(partials)))["partials"]
    assert sent["max"] == sent["sum"] == [p.max for p in partials]
    worst = [w and (bits(w["a"]), bits(w["b"])) for w in sent["worst"]]
    assert worst == [p.worst and (bits(p.worst.a), bits(p.worst.b)) for p in partials]


@pytest.mark.parametrize(
    ("worst", "mended"),
    [
        (Worst((0, 0), 1.0, 2.0, 1, token_id=-100), {}),
        (Worst((0, 0), 1.0, 2.0, 1, sample="a\nb\ud800"), {"sample": "a\ufffdb\ufffd"}),
        (Worst((0, 0), 1.0, 2.0, 1, sample="é" * 600), {"sample": "é" * 500}),
    ],
)
def test_report_mends_what_could_not_travel(worst: Worst, mended: dict[str, object]) -> None:
    """One odd token id or sample name never makes the aggregator refuse the whole report."""
    partial = Partial(valid=1, count=1, max=1.0, sum=1.0, worst=worst)
    sent = told(partial_item("s", 0, 0, partial))["partials"]["worst"][0]
    assert sent == {"position": [0, 0], "a": 1.0, "b": 2.0, "ulp": 1} | mended


def test_items_know_their_size() -> None:
    """The longer the names, the more an item weighs."""
    short, long = (pack(partial_item("s" * n, 0, 0, CLEAN)) for n in (1, 100))
    assert size_of(long) == size_of(short) + 99
    assert size_of(short) > size_of(pack(OPEN))
