"""The gauges of runs: every family's name and meaning, and how it is read from a snapshot.

A value that does not exist is left out; it is neither 0 nor NaN, because `NaN > 0` is false and
an alert would sleep over it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from rankfold.fold import Fold, Table
from rankfold.gate import Gate
from rankfold.rules import Rule
from rankfold_service import present
from rankfold_service.judge import RunSnapshot

Number = float | int
# A label's value, or "" where a family has none beside the run's, and the gauge's.
Sample = tuple[str, Number | None]
ByRule = Mapping[Rule, list[Sample]]

_GATES = [(gate.value, gate) for gate in Gate]


class Figures(NamedTuple):
    """A run's snapshot, its series in order and its keys by rule, read once for all families."""

    run: RunSnapshot
    series: list[tuple[str, Fold]]
    totals: ByRule
    newest: ByRule


class Family(NamedTuple):
    """All gauges of one name, each labelled with project and run.

    Attributes:
        name: of the family.
        help: what it means, in one sentence without a backslash, a quote or a line break.
        label: one more label, or "".
        read: returns a run's samples.
    """

    name: str
    help: str
    label: str
    read: Callable[[Figures], Iterable[Sample]]


def figures(run: RunSnapshot) -> Figures:
    """Return what the families are read from."""
    series = sorted(run.totals.series.items())
    return Figures(run, series, _by_rule(run, run.totals), _by_rule(run, run.newest))


def _by_rule(run: RunSnapshot, table: Table) -> ByRule:
    found: defaultdict[Rule, list[Sample]] = defaultdict(list)
    for key in present.keys(run, table):
        found[key.rule].append((key.name, key.value))
    return found


def _total(rule: Rule, of: Figures) -> Iterable[Sample]:
    return of.totals.get(rule, ())


def _newest(rule: Rule, of: Figures) -> Iterable[Sample]:
    return of.newest.get(rule, ())


def _series(count: Callable[[Fold], int], of: Figures) -> list[Sample]:
    return [(name, count(fold)) for name, fold in of.series]


def _run(value: Callable[[RunSnapshot], Number | None], of: Figures) -> list[Sample]:
    return [("", value(of.run))]


def _gates(of: Figures) -> list[Sample]:
    return [(name, int(gate is of.run.gate)) for name, gate in _GATES]


_OF_RULE: Mapping[Rule, str] = {
    Rule.SUM: "Keys folded by sum: the exact sum, rounded once to a double",
    Rule.MAX: "Keys folded by max: the largest value",
    Rule.MIN: "Keys folded by min: the smallest value",
    Rule.MEAN: "Keys folded by mean: weighted by positions or weights and divided once",
    Rule.LAST: "Keys folded by last: the newest value",
    Rule.STD: "Standard deviation of |a - b|, from the merged moments",
}

_OF_SERIES: Mapping[str, tuple[str, Callable[[Fold], int]]] = {
    "rankfold_mismatch_positions": (
        "Positions where trainer and rollout differ, over all attempts; never falls.",
        lambda fold: fold.count,
    ),
    "rankfold_nonfinite_positions": (
        "Mismatching positions whose |a - b| is NaN or infinite, over all attempts; never falls.",
        lambda fold: fold.nonfinite,
    ),
    "rankfold_valid_positions": (
        "Positions compared, those under the mask, over all attempts; never falls.",
        lambda fold: fold.valid,
    ),
}

_OF_RUN: Mapping[str, tuple[str, Callable[[RunSnapshot], Number | None]]] = {
    "rankfold_conflicts": (
        "Identities reported again with other content, over all attempts; never falls.",
        lambda run: run.conflicts,
    ),
    "rankfold_run_iteration": ("The newest iteration reported.", lambda run: run.iteration),
    "rankfold_run_complete_iteration": (
        "The newest iteration that every expected rank committed and reported in full.",
        lambda run: run.complete_iteration,
    ),
    "rankfold_run_ranks_expected": (
        "Ranks of the latest attempt: its world size, or those seen where it is not known.",
        lambda run: run.ranks_expected,
    ),
    "rankfold_run_ranks_reporting": (
        "Ranks of the latest attempt that have reported.",
        lambda run: run.ranks_reporting,
    ),
    "rankfold_run_incomplete_iterations": (
        "Iterations that lack a rank, a commit or a microbatch; those in progress count too.",
        lambda run: run.incomplete_iterations,
    ),
    "rankfold_run_last_report_timestamp_seconds": (
        "When the last report of any rank arrived, in seconds since the epoch.",
        lambda run: run.last_report,
    ),
    "rankfold_run_finished": ("1 once the run is finished, else 0.", lambda run: int(run.finished)),
}

FAMILIES: tuple[Family, ...] = (
    *(
        Family(
            f"rankfold_{rule}_value",
            f"{text}, over the whole run and all attempts.",
            "key",
            partial(_total, rule),
        )
        for rule, text in _OF_RULE.items()
    ),
    *(
        Family(
            f"rankfold_iteration_{rule}_value",
            f"{_OF_RULE[rule]}, in the newest complete iteration.",
            "key",
            partial(_newest, rule),
        )
        for rule in (Rule.SUM, Rule.MAX, Rule.MIN, Rule.MEAN)
    ),
    *(
        Family(name, text, "series", partial(_series, count))
        for name, (text, count) in _OF_SERIES.items()
    ),
    *(Family(name, text, "", partial(_run, value)) for name, (text, value) in _OF_RUN.items()),
    Family("rankfold_gate", "1 for the run's live verdict, 0 for the others.", "status", _gates),
)
