"""The published cases: reports as numbers, and what they must fold into."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rankfold.coverage import Selection, coverage
from rankfold.gate import Evidence, Policy, evaluate
from rankfold.ledger import Ledger
from rankfold.rules import extras, read_scalar
from unit.core.builders import ledger_of, report_of_json

CASES = json.loads(Path(__file__, "../../../cases/folds.json").resolve().read_text())


def keys(ledger: Ledger) -> dict[str, Any]:
    """Return the value of every key of the effective totals."""
    totals = ledger.totals("effective")
    found = {
        reading.name: reading.key(totals).value
        for series, fold in totals.series.items()
        for reading in ledger.facts.rules.readings(series, extras(fold))
    }
    for name, fold in totals.scalars.items():
        found[name] = read_scalar(fold, ledger.facts.bindings[name].rule)
    return found


def gate(ledger: Ledger) -> str:
    """Return the strict verdict."""
    evidence = Evidence(
        series=ledger.totals("all").series,
        coverage=coverage(ledger, Selection()),
        conflicts=ledger.conflicts,
        finished=ledger.finished,
    )
    return str(evaluate(Policy(), evidence).gate)


def check(case: dict[str, Any], ledger: Ledger) -> None:
    """Compare every key, and the verdict where the case has one, with what is expected."""
    assert keys(ledger) == case["expect"]["keys"]
    assert case["expect"].get("gate") in (None, gate(ledger))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case_folds_into_what_is_expected(case: dict[str, Any]) -> None:
    """Each case in the order in which it was published."""
    check(case, ledger_of(*map(report_of_json, case["reports"])))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c["name"] != "copies_that_disagree_are_invalid"],
    ids=lambda case: case["name"],
)
def test_case_folds_alike_in_any_order_and_sent_again(case: dict[str, Any], seed: int) -> None:
    """Order and repetition change no case that has no conflict."""
    reports = [report_of_json(body) for body in case["reports"] * 2]
    random.Random(seed).shuffle(reports)
    check(case, ledger_of(*reports))
