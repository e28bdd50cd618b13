"""Reports for tests: from the contract's row form, and at random."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from rankfold.partial import PartialColumns, Worst, number_from_json
from rankfold.rules import Rule
from rankfold.wire import Commit, Report, ScalarColumns

SERIES = "training/rollout_logprobs"
OPTIONAL = ("sum_sq", "ulp_max", "total", "worst")


def partial(**fields: Any) -> dict[str, Any]:
    """Return a partial in row form; clean unless the fields say otherwise."""
    row = {"series": SERIES, "iteration": 0, "microbatch": 0, "count": 0, "valid": 8}
    return {**row, "max": 0.0, "sum": 0.0, "nonfinite": 0, **fields}


def partial_columns(rows: list[dict[str, Any]]) -> PartialColumns:
    """Return the columns of partials in row form."""
    columns = PartialColumns()
    for name in ("series", "iteration", "microbatch", "count", "valid", "max", "sum"):
        setattr(columns, name, [row[name] for row in rows])
    columns.nonfinite = [row.get("nonfinite", 0) for row in rows]
    for name in OPTIONAL:
        values = [row.get(name) for row in rows]
        if any(value is not None for value in values):
            setattr(columns, name, values)
    return columns


def scalar_columns(rows: list[dict[str, Any]]) -> ScalarColumns:
    """Return the columns of scalars in row form."""
    return ScalarColumns(
        key=[row["key"] for row in rows],
        iteration=[row.get("iteration", 0) for row in rows],
        microbatch=[row.get("microbatch", 0) for row in rows],
        value=[number_from_json(row["value"]) for row in rows],
        weight=[row.get("weight", 1) for row in rows],
        rule=[Rule(row.get("rule", "mean")) for row in rows],
        is_global=[row.get("global", False) for row in rows],
    )


def report(**fields: Any) -> Report:
    """Return the report that a body in row form describes."""
    return Report(
        run=fields.get("run", "run"),
        rank=fields.get("rank", 0),
        project=fields.get("project", "default"),
        attempt=fields.get("attempt", 0),
        world_size=fields.get("world_size"),
        partials=partial_columns(fields.get("partials", [])),
        scalars=scalar_columns(fields.get("scalars", [])),
        commits=[Commit(**row) for row in fields.get("commits", [])],
        meta=fields.get("meta", {}),
        dropped=fields.get("dropped", 0),
    )


ITERATIONS = st.integers(0, 6)
MICROBATCHES = st.integers(0, 3)
DIFFERENCES = st.one_of(
    st.sampled_from([5e-324, 1e-9, 7.450580596923828e-09, 1 / 3, 1.0, 1e16, 3.5e300]),
    st.floats(min_value=5e-324, max_value=1e300),
)


@st.composite
def partial_rows(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid partial in row form, of few identities, so that copies happen."""
    valid = draw(st.integers(0, 5))
    count = draw(st.integers(0, valid))
    nonfinite = draw(st.integers(0, count))
    difference = draw(DIFFERENCES) if count > nonfinite else 0.0
    row: dict[str, Any] = {
        "series": draw(st.sampled_from(["a", "b"])),
        "iteration": draw(ITERATIONS),
        "microbatch": draw(MICROBATCHES),
        "count": count,
        "valid": valid,
        "nonfinite": nonfinite,
        "max": None if valid == nonfinite else difference,
        "sum": difference,
        "sum_sq": draw(st.sampled_from([None, 0.25])) if count else None,
        "ulp_max": draw(st.sampled_from([None, count])),
        "total": draw(st.sampled_from([None, valid + 1])),
    }
    if count and draw(st.booleans()):
        a = draw(st.sampled_from([-0.5, math.nan, -math.inf]))
        row["worst"] = Worst((0, draw(MICROBATCHES)), a, 0.25, count, None, "sample")
    return row


@st.composite
def scalar_rows(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a scalar in row form, of few identities."""
    key = draw(st.sampled_from(["loss", "tokens"]))
    return {
        "key": key,
        "iteration": draw(ITERATIONS),
        "microbatch": 0,
        "value": draw(st.sampled_from([1.5, 2.25, 0.1, math.nan, math.inf])),
        "weight": draw(st.integers(0, 3)),
        "rule": "mean" if key == "loss" else draw(st.sampled_from(["sum", "last"])),
        "global": key == "tokens",
    }


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """Draw a report of one of two runs, three attempts and three ranks."""
    commits = st.builds(
        lambda i, n: {"iteration": i, "microbatches": n}, ITERATIONS, st.integers(0, 4)
    )
    return report(
        run=draw(st.sampled_from(["x", "y"])),
        rank=draw(st.integers(0, 2)),
        attempt=draw(st.sampled_from([0, 0, 0, 1, 2])),
        world_size=draw(st.sampled_from([None, 3])),
        partials=draw(st.lists(partial_rows(), max_size=4)),
        scalars=draw(st.lists(scalar_rows(), max_size=2)),
        commits=draw(st.lists(commits, max_size=2)),
        meta=draw(st.sampled_from([{}, {"dtype": "float32"}, {"dtype": "bfloat16"}])),
        dropped=draw(st.sampled_from([0, 0, 3])),
    )
