"""What holds of every body: one meaning in both forms, a reason for every refusal, no crash."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.errors import Inconsistent, MalformedBody, RequestError
from rankfold.partial import MAX_INDEX, faults
from rankfold_service.http.decode import consistent, decode_report
from rankfold_service.http.shapes import ReportBody
from unit.service.http.test_decode import (
    PARTIAL,
    RULES,
    WORST,
    columnar,
    decode,
    refused,
)

FLOATS = st.floats(min_value=0, allow_infinity=False) | st.integers(0, 2**70)
COUNTS = st.integers(0, 3)


@st.composite
def partials(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a partial, consistent or not."""
    row: dict[str, Any] = {
        "series": draw(st.sampled_from(["a", "b/ü", "\U0001f600"])),
        "iteration": draw(st.integers(0, MAX_INDEX)),
        "microbatch": draw(COUNTS),
        "count": draw(COUNTS),
        "valid": draw(COUNTS),
        "max": draw(st.none() | st.sampled_from([0, 0.0, 0.5]) | FLOATS),
        "sum": draw(st.sampled_from([0, 0.0, 0.5]) | FLOATS),
    }
    optional = {
        "nonfinite": COUNTS,
        "sum_sq": st.none() | st.sampled_from([0, 0.25]),
        "ulp_max": st.none() | COUNTS,
        "total": st.none() | COUNTS,
        "worst": st.none() | st.just({**WORST, "a": 0.5}),
    }
    return row | draw(st.fixed_dictionaries({}, optional=optional))


@st.composite
def good_partials(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a partial that may be folded."""
    row = draw(partials())
    row["valid"] = max(row["valid"], row["count"])
    row["nonfinite"] = min(row.get("nonfinite", 0), row["count"])
    if row["valid"] == row["nonfinite"]:
        row["max"] = None
    elif not row["count"] or row["max"] is None:
        row["max"] = 0
    if not row["count"] or row["max"] is None:
        row["sum"], row["sum_sq"] = 0, None
    row["total"] = None if row.get("total") is None else row["valid"] + row["total"]
    return row


SCALARS = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["known/a", "b"]),
        "iteration": st.integers(0, MAX_INDEX),
        "microbatch": COUNTS,
        "value": st.floats(allow_nan=False, allow_infinity=False) | st.just("-Infinity"),
        "rule": st.sampled_from(["sum", "max", "min", "mean", "last"]),
    },
    optional={"weight": COUNTS, "global": st.booleans()},
)


@given(st.lists(good_partials(), max_size=5), st.lists(SCALARS, max_size=5))
def test_decode_gives_the_same_for_both_forms(
    rows: list[dict[str, Any]], scalars: list[dict[str, Any]]
) -> None:
    """The form in which a list is sent leaves no trace."""
    document: dict[str, Any] = {"run": "r", "rank": 0, "partials": rows, "scalars": scalars}
    got = decode(document)
    assert len(got) == len(rows) + len(scalars)
    if rows:
        document["partials"] = columnar(rows, {"nonfinite": 0})
    if scalars:
        document["scalars"] = columnar(scalars, {"weight": 1, "global": False})
    assert decode(document) == got


@given(st.lists(partials(), min_size=1, max_size=4))
def test_decode_refuses_exactly_what_breaks_an_invariant(rows: list[dict[str, Any]]) -> None:
    """The check over whole columns and the core's reasons agree, row by row."""
    broken = {
        f"/partials/{index}/{name}"
        for index, row in enumerate(rows)
        for name, _ in faults(
            row["valid"],
            row["count"],
            row.get("nonfinite", 0),
            row["max"],
            row["sum"],
            row.get("sum_sq"),
            row.get("total"),
            row.get("ulp_max"),
        )
    }
    document = {"run": "r", "rank": 0, "partials": rows}
    if broken:
        assert set(refused(document)) == broken
    else:
        assert consistent(decode(document).partials)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=3)
    | st.sampled_from(["NaN", "mean", 10**400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
MEMBERS = st.sampled_from([*ReportBody.__annotations__, "other"])


@given(st.binary(max_size=200))
def test_decode_refuses_arbitrary_bytes(body: bytes) -> None:
    """No bytes raise anything but a refusal."""
    with pytest.raises(RequestError):
        decode_report(body, RULES)


@given(
    st.dictionaries(MEMBERS, JSON),
    st.dictionaries(st.sampled_from([*PARTIAL, "worst", "nonfinite", "x"]), JSON),
    st.booleans(),
)
def test_decode_says_why_it_refuses(
    members: dict[str, Any], partial: dict[str, Any], in_columns: bool
) -> None:
    """Whatever is sent is taken, or refused with reasons that say more than that."""
    rows: Any = {**PARTIAL, **partial}
    rows = {name: [value] for name, value in rows.items()} if in_columns else [rows]
    document = {"run": "r", "rank": 0, "partials": rows, **members}
    with suppress(MalformedBody):
        assert "cannot be taken" not in outcome(document)


def outcome(document: Any) -> str:
    """Return why a document is refused, or nothing where it is not."""
    try:
        decode(json.dumps(document))
    except Inconsistent as refusal:
        return str(refusal)
    return ""
