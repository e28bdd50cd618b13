"""The verdict, its precedence and its reasons."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from rankfold.coverage import Coverage, Missing
from rankfold.exact import to_units
from rankfold.fold import Fold
from rankfold.gate import Evidence, Gate, Policy, Verdict, evaluate, in_progress

CLEAN = Fold(1, 8, 0, 0, 0, 0.0, 0.0)
DONE = Coverage(first=0, last=0, complete=1, expected=1, expected_known=True, reporting=1)


def off(count: int = 1, valid: int = 8, each: float = 0.5, nonfinite: int = 0) -> Fold:
    """Return a fold of mismatches of one size."""
    finite = count - nonfinite
    return Fold(1, valid, count, nonfinite, to_units(each) * finite, each, each)


def judged(policy: Policy | None = None, **evidence: Any) -> Verdict:
    """Return the verdict on clean evidence, with the given parts instead."""
    clean = {"series": {"s": CLEAN}, "coverage": DONE}
    return evaluate(policy or Policy(), Evidence(**{**clean, **evidence}))


def test_clean_run_passes_and_says_over_how_much() -> None:
    """A pass names the positions and iterations that it rests on."""
    assert judged() == Verdict(Gate.PASS, ["8 positions compared in 1 complete iteration"])


FLAWS: list[tuple[Gate, dict[str, Any]]] = [
    (Gate.FAIL, {"series": {"s": off(1, valid=1)}}),
    (Gate.INVALID, {"conflicts": 1}),
    (Gate.INCOMPLETE, {"dropped": 1}),
    (Gate.NO_DATA, {"series": {"empty": Fold(1)}}),
]


@pytest.mark.parametrize("flaws", [c for n in (1, 2, 3, 4) for c in combinations(FLAWS, n)])
def test_verdict_is_the_weightiest_that_applies(flaws: list[tuple[Gate, dict[str, Any]]]) -> None:
    """fail, invalid, incomplete, no_data, pass: in this order, with the reasons of the lesser."""
    evidence: dict[str, Any] = {}
    for _, part in flaws:
        evidence.update(part)
    series = {name: f for _, part in flaws for name, f in part.get("series", {}).items()}
    verdict = judged(**{**evidence, **({"series": series} if series else {})})
    assert verdict.gate is flaws[0][0]
    assert len(verdict.reasons) == len(flaws)


def test_gate_words_are_those_of_the_contract() -> None:
    """The five words, as programs read them."""
    assert [str(gate) for gate in Gate] == ["fail", "invalid", "incomplete", "no_data", "pass"]


@pytest.mark.parametrize(
    ("policy", "fold", "reasons"),
    [
        ({}, off(1), ["s: 1 of 8 positions mismatch"]),
        ({"max_mismatch_count": 1}, off(1), []),
        ({"max_mismatch_count": 1}, off(2), ["s: 2 of 8 positions mismatch, 1 allowed"]),
        ({"max_mismatch_count": 9, "max_diff_max": 0.5}, off(1), []),
        (
            {"max_mismatch_count": 9, "max_diff_max": 0.4},
            off(1),
            ["s: max difference 0.5 is over 0.4"],
        ),
        ({"max_mismatch_count": 9, "max_diff_mean": 0.0625}, off(1), []),
        (
            {"max_mismatch_count": 9, "max_diff_mean": 0.06},
            off(1),
            ["s: mean difference 0.0625 is over 0.06"],
        ),
        (
            {"max_mismatch_count": 9, "max_diff_max": 1.0},
            off(2, nonfinite=1),
            ["s: 1 differences are not finite, max limit 1.0"],
        ),
        ({"max_mismatch_count": 9}, off(2, nonfinite=1), []),
        ({"max_diff_max": 0.0, "max_diff_mean": 0.0}, CLEAN, []),
    ],
)
def test_run_fails_by_what_the_caller_demands(
    policy: dict[str, Any], fold: Fold, reasons: list[str]
) -> None:
    """Counts and differences may reach the limits and not exceed them."""
    verdict = judged(Policy(**policy), series={"s": fold})
    assert verdict.gate is (Gate.FAIL if reasons else Gate.PASS)
    tolerated = {0: "", 1: ", 1 mismatch tolerated"}.get(fold.count, ", 2 mismatches tolerated")
    clean = [f"8 positions compared in 1 complete iteration{tolerated}"]
    assert verdict.reasons == (reasons or clean)


def test_thresholds_say_nothing_about_a_series_without_a_position() -> None:
    """Where nothing was folded there is no maximum or mean to exceed."""
    policy = Policy(max_diff_max=0.0, max_diff_mean=0.0)
    assert judged(policy, series={"s": Fold(1)}).gate is Gate.NO_DATA


@pytest.mark.parametrize(
    ("policy", "evidence", "gate", "reason"),
    [
        (
            {},
            {"coverage": Coverage(incomplete=[3], open=[3], missing=[Missing(3, 0, 1)])},
            Gate.INCOMPLETE,
            "1 iteration incomplete: 3 (rank 1)",
        ),
        (
            {},
            {"coverage": Coverage(incomplete=list(range(12)))},
            Gate.INCOMPLETE,
            "12 iterations incomplete: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...",
        ),
        (
            {},
            {"coverage": Coverage(absent=[4], complete=1)},
            Gate.INCOMPLETE,
            "1 iteration without a series: 4",
        ),
        (
            {"allow_absent": True},
            {"coverage": Coverage(absent=[4], complete=1)},
            Gate.PASS,
            "8 positions compared in 1 complete iteration",
        ),
        (
            {},
            {"coverage": Coverage(silent=[2], expected=3)},
            Gate.INCOMPLETE,
            "ranks that never reported: 2 of 3",
        ),
        (
            {},
            {"dropped": 2},
            Gate.INCOMPLETE,
            "ranks had to give up 2 partials or scalars: their logs say why",
        ),
        ({"require_finished": True}, {}, Gate.INCOMPLETE, "the run is not finished"),
        (
            {"require_finished": True},
            {"finished": True},
            Gate.PASS,
            "8 positions compared in 1 complete iteration",
        ),
        ({}, {"series": {}}, Gate.NO_DATA, "no series was reported"),
        ({}, {"series": {}, "outside": "the newest is 3"}, Gate.NO_DATA, "the newest is 3"),
        ({}, {"series": {"s": Fold()}}, Gate.NO_DATA, "s: nothing was reported"),
        ({}, {"series": {"s": Fold(1)}}, Gate.NO_DATA, "s: no position was under the mask"),
        (
            {},
            {"series": {"s": Fold(1, total=2)}},
            Gate.NO_DATA,
            "s: no position was under the mask",
        ),
        (
            {},
            {"series": {"s": Fold(1, total=0)}},
            Gate.NO_DATA,
            "s: no position to compare, the tensors are empty",
        ),
    ],
)
def test_verdict_says_what_is_missing(
    policy: dict[str, Any], evidence: dict[str, Any], gate: Gate, reason: str
) -> None:
    """Each gap has its reason in words."""
    assert judged(Policy(**policy), **evidence) == Verdict(gate, [reason])


LIVE = Policy(live=True)
MOVING = Coverage(
    complete=1,
    incomplete=[1, 3],
    absent=[3, 4],
    open=[3, 4],
    missing=[Missing(1, 0, 0)],
    silent=[7],
)


def test_live_verdict_leaves_out_what_is_in_progress() -> None:
    """Open gaps and ranks that have not come yet are no reason while the run goes on."""
    calm = Coverage(complete=1, incomplete=[3], absent=[3, 4], open=[3, 4], silent=[7])
    assert judged(LIVE, coverage=calm).gate is Gate.PASS
    assert judged(LIVE, coverage=MOVING).reasons == ["1 iteration incomplete: 1 (rank 0)"]
    assert in_progress(LIVE, MOVING, over=False) == {3, 4}
    assert in_progress(Policy(), MOVING, over=False) == frozenset()


@pytest.mark.parametrize("over", ["finished", "stale"])
def test_live_verdict_on_a_run_that_is_over_is_strict(over: str) -> None:
    """Nothing is in progress in a run that is finished or stale."""
    verdict = judged(LIVE, coverage=MOVING, **{over: True})
    assert verdict.reasons == judged(coverage=MOVING).reasons
    assert len(verdict.reasons) == 3
    assert in_progress(LIVE, MOVING, over=True) == frozenset()


def test_live_verdict_is_no_data_until_something_is_complete() -> None:
    """A clean run that has only begun has not passed yet, but may have failed."""
    begun = Coverage(incomplete=[0], open=[0])
    assert judged(LIVE, coverage=begun) == Verdict(Gate.NO_DATA, ["no iteration is complete yet"])
    assert judged(LIVE, coverage=begun, series={"s": off()}).gate is Gate.FAIL
    assert judged(LIVE, coverage=begun, conflicts=1).gate is Gate.INVALID
