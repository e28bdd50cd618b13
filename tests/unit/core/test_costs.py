"""What one report or read costs must not grow with history, ranks or attempts.

Calls are counted, not seconds; what C code would walk through is replaced by fakes that
refuse to be walked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from rankfold import reading
from rankfold.coverage import Selection, coverage
from rankfold.iterations import Iterations
from rankfold.ledger import KEPT_ITERATIONS, Ledger
from rankfold.wire import Report
from unit.core.builders import SERIES, Shelf, dirty, ledger_of, partial, report, scalar

SMALL, LARGE = 40, 400


def calls(action: Callable[..., Any], *arguments: Any) -> int:
    """Return how many Python and C functions an action calls."""
    count = 0

    def see(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        action(*arguments)
    finally:
        sys.setprofile(before)
    return count


class Unwalked(dict[Any, Any]):
    """A dict that answers for a key and refuses to be walked through."""

    def _refuse(self, *_: object) -> Any:
        raise AssertionError("walked through what grows")

    __iter__ = keys = values = items = _refuse


class UnwalkedIterations(Iterations):
    """Iterations that answer for a number and refuse to be walked through."""

    __slots__ = ()

    def _refuse(self, *_: object) -> Any:
        raise AssertionError("walked through what grows")

    __iter__ = between = descending = _refuse


def step(iteration: int, rank: int = 0, **rest: Any) -> Report:
    """Return what a rank says of one finished iteration."""
    rows, values = [dirty(iteration, m) for m in range(3)], [scalar(iteration=iteration)]
    return report(rank, rows, values, [(iteration, 3)], **rest)


def long_run(iterations: int, ranks: int = 1, world_size: int | None = None) -> Ledger:
    """Return a run of so many iterations on so many ranks."""
    steps = [step(i, r, world_size=world_size) for i in range(iterations) for r in range(ranks)]
    return ledger_of(*steps)


@pytest.mark.parametrize("world_size", [1, None])
def test_report_costs_the_same_after_a_long_history(world_size: int | None) -> None:
    """New, late and repeated reports do as much work on iteration 400 as on iteration 40."""
    costs = []
    for length in (SMALL, LARGE):
        ledger = long_run(length, world_size=world_size)
        # One iteration was left out, to be late with.
        ledger.apply(step(length + 1), 1.0)
        reports = [step(length + 2), step(length), step(length // 2)]
        costs.append([calls(ledger.apply, r, 2.0) for r in reports])
    assert costs[0] == costs[1]


def test_report_costs_the_same_among_many_ranks() -> None:
    """The work for one rank does not depend on how many others report."""
    costs = []
    for ranks in (2, 100):
        ledger = long_run(2, ranks, world_size=ranks)
        costs.append([calls(ledger.apply, step(i, 1), 2.0) for i in (1, 2)])
    assert costs[0] == costs[1]


def test_report_costs_the_same_after_many_attempts() -> None:
    """A run that was restarted often takes its reports as one that never was."""
    costs = []
    for attempts in (2, 60):
        ledger = ledger_of(*(step(0, attempt=n) for n in range(attempts)))
        costs.append(calls(ledger.apply, step(1, attempt=attempts - 1), 2.0))
    assert costs[0] == costs[1]


def test_report_walks_through_nothing_that_grows() -> None:
    """Neither reporters nor iterations are gone through, in Python or in C."""
    ledger = long_run(SMALL, 3, world_size=4)
    attempt = ledger.latest
    attempt.reporters = Unwalked(attempt.reporters)
    attempt.seen[SERIES] = UnwalkedIterations(attempt.seen[SERIES])
    for name in ("paged", "covered", "worked"):
        setattr(attempt, name, UnwalkedIterations(getattr(attempt, name)))
    accepted = [ledger.apply(step(SMALL, rank), 2.0).accepted for rank in (0, 1, 2)]
    with pytest.raises(AssertionError, match="walked"):
        list(attempt.paged)  # the fakes do refuse
    assert accepted == [4, 4, 4]


def test_report_in_descending_order_rebuilds_once() -> None:
    """A restart that reports its iterations backwards in one batch supersedes only once."""
    shelf = Shelf()
    ledger = shelf.ledger()
    done = [(i, 1) for i in range(20)]
    ledger.apply(report(0, [partial(i) for i, _ in done], commits=done), 1.0)
    shelf.save(ledger)
    ledger.apply(report(partials=[partial(i) for i in range(13, 9, -1)], attempt=1), 2.0)
    assert (shelf.loads, ledger.attempts[0].cut) == (10, 10)


def test_totals_cost_the_same_after_a_long_history() -> None:
    """Totals, overall and per rank, are kept ready, before and after a restart."""
    costs = []
    for length in (SMALL, LARGE):
        ledger = long_run(length, 2, world_size=2)
        ledger.apply(step(length, attempt=1), 2.0)
        costs.append(
            [calls(ledger.totals, a, r) for a in ("effective", "all", 0, 1) for r in (None, 1)]
        )
    assert costs[0] == costs[1]


@pytest.mark.parametrize("cut", [None, 2])
def test_clean_run_is_judged_at_the_same_cost_after_a_long_history(cut: int | None) -> None:
    """Coverage and the newest complete iteration cost the same where nothing is missing."""
    costs = []
    for length in (SMALL, LARGE):
        ledger = long_run(length, 2, world_size=2)
        if cut is not None:
            for rank in (0, 1):
                ledger.apply(step(cut, rank, attempt=1, world_size=2), 2.0)
        costs.append(
            (
                calls(coverage, ledger, Selection()),
                calls(reading.newest_complete, ledger),
                calls(reading.iterations, ledger, Selection(first=1), None, 2),
            )
        )
    assert costs[0] == costs[1]


def test_reports_and_clean_verdicts_load_no_page() -> None:
    """Pages of complete iterations stay where they are kept."""
    shelf = Shelf()
    ledger = shelf.ledger()
    for iteration in range(50):
        ledger.apply(step(iteration, world_size=1), 1.0)
        shelf.save(ledger, KEPT_ITERATIONS)
    coverage(ledger, Selection())
    ledger.totals("effective")
    reading.newest_complete(ledger)
    assert shelf.loads == 0


@pytest.mark.parametrize("exact", [True, False])
def test_live_verdict_of_a_run_without_commits_loads_no_page(exact: bool) -> None:
    """Where every iteration is in progress, what is settled is nothing, and costs nothing."""
    shelf = Shelf()
    ledger = shelf.ledger()
    for attempt in (0, 1):
        for iteration in range(30 * attempt, 50):
            ledger.apply(report(0, [dirty(iteration, 0)], attempt=attempt), 1.0)
        shelf.save(ledger, KEPT_ITERATIONS)
    everything = Selection(attempts="effective")
    waiting = coverage(ledger, everything, 0).open
    shelf.loads = 0
    settled = reading.settled_series(ledger, everything, waiting, exact=exact)
    assert (len(waiting), settled, shelf.loads) == (50, {}, 0)
