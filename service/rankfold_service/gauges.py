"""The gauges of runs: every family's name and meaning, and how its gauges are read from a snapshot.

A value that does not exist is left out; it is neither 0 nor NaN, because `NaN > 0` is false and
an alert would sleep over it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from rankfold.fold import Fold, Table
from rankfold.gate import Gate
from rankfold.rules import Reading, Rule
from rankfold_service import present
from rankfold_service.judge import RunSnapshot

Number = float | int
Read = Callable[[RunSnapshot], Number | None]
# What a family's own label says, or "" where it has none, and how the gauge is read.
Gauge = tuple[str, Read]
ByRule = Mapping[Rule, Sequence[Gauge]]


class Shape(NamedTuple):
    """What decides which gauges a run has: runs of one shape have the same, of other values."""

    totals: present.Shape
    newest: present.Shape


class Plan(NamedTuple):
    """What the families of a run's gauges are made from."""

    series: Sequence[str]
    totals: ByRule
    newest: ByRule


class Family(NamedTuple):
    """All gauges of one name, each labelled with project and run.

    Attributes:
        name: of the family.
        help: what it means, in one sentence without a backslash, a quote or a line break.
        label: one more label, or "".
        gauges: returns those of the runs of one plan.
    """

    name: str
    help: str
    label: str
    gauges: Callable[[Plan], Iterable[Gauge]]


def shape(run: RunSnapshot) -> Shape:
    """Return what decides which gauges a run has."""
    return Shape(present.shape(run, run.totals), present.shape(run, run.newest))


def plan(of: Shape) -> Plan:
    """Return what the families of runs of one shape are made from."""
    return Plan(
        of.totals.series,
        _by_rule(of.totals, attrgetter("totals")),
        _by_rule(of.newest, attrgetter("newest")),
    )


def _by_rule(of: present.Shape, table: Callable[[RunSnapshot], Table]) -> ByRule:
    found: defaultdict[Rule, list[Gauge]] = defaultdict(list)
    for reading in present.readings(of):
        found[reading.rule].append((reading.name, _reader(reading, table)))
    return found


def _reader(reading: Reading, table: Callable[[RunSnapshot], Table]) -> Read:
    read, name, series = reading.read, reading.name, reading.series
    if series is None:
        return lambda run: read(table(run).scalars[name])
    return lambda run: read(table(run).series[series])


def _total(rule: Rule, of: Plan) -> Iterable[Gauge]:
    return of.totals.get(rule, ())


def _newest(rule: Rule, of: Plan) -> Iterable[Gauge]:
    return of.newest.get(rule, ())


def _series(count: Callable[[Fold], int], of: Plan) -> list[Gauge]:
    def reader(name: str) -> Read:
        return lambda run: count(run.totals.series[name])

    return [(name, reader(name)) for name in of.series]


def _always(*gauges: Gauge) -> Callable[[Plan], Iterable[Gauge]]:
    return lambda _: gauges


def _is(gate: Gate) -> Read:
    return lambda run: int(run.gate is gate)


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

_OF_RUN: Mapping[str, tuple[str, Read]] = {
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
    *(Family(name, text, "", _always(("", read))) for name, (text, read) in _OF_RUN.items()),
    Family(
        "rankfold_gate",
        "1 for the run's live verdict, 0 for the others.",
        "status",
        _always(*((gate.value, _is(gate)) for gate in Gate)),
    ),
)
