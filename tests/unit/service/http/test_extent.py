"""What holds more than a report may is found out from its punctuation, whatever its strings say."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest

from rankfold.errors import TooLarge
from rankfold.rules import RuleSet
from rankfold_service.http.decode import decode_report
from rankfold_service.http.extent import check_extent, most_of
from rankfold_service.http.shapes import CommitRow, PartialRow, ScalarRow, Worst

WORST = {"position": [1, 2], "a": 1.5, "b": 2.5, "ulp": 3, "token_id": 4, "sample": '[{,"\\' * 100}
PARTIAL = {
    **{"series": '{[,"\\' * 40, "iteration": 0, "count": 1, "valid": 8, "max": 0.5, "sum": 0.5},
    **{"nonfinite": 0, "sum_sq": 0.25, "ulp_max": 3, "total": 9, "worst": WORST},
}
SCALAR = {"key": '"}],\\' * 40, "iteration": 0, "value": 1.5, "weight": 2, "global": False}
META = {f"{n}{'[,' * 90}": '{",' * 160 for n in range(64)}
ITEMS = 200


def fullest() -> dict[str, Any]:
    """Return a report whose lists have all the items and members that they may have."""
    each = range(ITEMS)
    return {
        **{"project": "p", "run": "r", "attempt": 0, "rank": 0, "world_size": 1, "dropped": 0},
        "meta": META,
        "partials": [{**PARTIAL, "microbatch": n} for n in each],
        "scalars": [{**SCALAR, "microbatch": n, "rule": "sum"} for n in each],
        "commits": [{"iteration": n, "microbatches": ITEMS} for n in each],
    }


def columnar(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report with columns in the place of rows."""
    lists = {
        name: {member: [row[member] for row in report[name]] for member in report[name][0]}
        for name in ("partials", "scalars", "commits")
    }
    return {**report, **lists}


@pytest.mark.parametrize("report", [fullest(), columnar(fullest())], ids=["rows", "columns"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_fullest_report_is_taken(report: dict[str, Any], ascii_only: bool) -> None:
    """Every member of every item, and strings that are full of what is counted outside of them."""
    document = json.dumps(report, ensure_ascii=ascii_only).encode()
    check_extent(document, ITEMS)
    assert len(decode_report(document, RuleSet(), ITEMS)) == 2 * ITEMS


def test_fullest_report_has_every_member_there_is() -> None:
    """A member that is added to the shapes has to be counted too."""
    report = fullest()
    assert report["partials"][0].keys() == PartialRow.__annotations__.keys()
    assert report["scalars"][0].keys() == ScalarRow.__annotations__.keys()
    assert report["commits"][0].keys() == CommitRow.__annotations__.keys()
    assert WORST.keys() == Worst.__annotations__.keys()


@pytest.mark.parametrize("item", ["{}", "[]", "1", '""', 'null,"[{,"', '"\\\\"', '{"":{}}'])
def test_more_than_a_report_holds_is_refused(item: str) -> None:
    """Whatever the items are: objects, arrays, numbers or strings."""
    most = most_of(ITEMS)
    report = f'{{"run":"r","rank":0,"partials":[{",".join([item] * (max(most) + 2))}]}}'
    with pytest.raises(TooLarge, match="more than a report may; 200 items are allowed"):
        check_extent(report.encode(), ITEMS)


@pytest.mark.parametrize("tail", [b'\\"', b'\\",', b'"\\', b'"', b"\\"])
def test_strings_without_end_are_looked_at_once(tail: bytes) -> None:
    """A string that does not end is none; to look for its end from each quote would take hours."""
    document = b'{"' + tail * 100_000 + b"," * 10_000
    started = time.process_time()
    with contextlib.suppress(TooLarge):
        check_extent(document, ITEMS)
    assert time.process_time() - started < 2
