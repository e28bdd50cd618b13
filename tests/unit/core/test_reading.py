"""What the answers are read from: ranges and pages of iterations."""

from __future__ import annotations

from rankfold.coverage import Selection
from rankfold.ledger import Ledger
from rankfold.page import GLOBAL
from rankfold.reading import IterationFolds, iterations, newest_complete, range_totals
from unit.core.builders import SERIES, dirty, ledger_of, partial, plain, report, scalar


def restarted() -> Ledger:
    """Return a run of two ranks that was restarted at iteration 3."""
    done = [(i, 1) for i in (1, 2, 3, 4)]
    return ledger_of(
        report(0, [dirty(i) for i in (1, 2, 3, 4)], [scalar(iteration=9)], done, world_size=2),
        report(1, [dirty(i, count=2) for i in (1, 2, 3)], commits=done[:3]),
        report(0, [dirty(3, count=5)], commits=[(3, 1)], attempt=1, world_size=1),
        report(0, [partial(4)], attempt=1),
    )


def shown(pages: list[IterationFolds]) -> list[tuple[int, bool, int | None]]:
    """Return iteration, completeness and mismatches of each."""
    return [
        (p.iteration, p.complete, fold and fold.count)
        for p in pages
        for fold in [p.table.series.get(SERIES)]
    ]


def test_iterations_come_ascending_and_follow_the_attempts_asked_for() -> None:
    """Each iteration is read where it is effective, or in all attempts, or in one."""
    ledger = restarted()
    effective = [(1, True, 3), (2, True, 3), (3, True, 5), (4, False, 0)]
    assert shown(iterations(ledger, Selection(), None, 99)) == effective
    everything = [(1, True, 3), (2, True, 3), (3, True, 8), (4, False, 1), (9, False, None)]
    assert shown(iterations(ledger, Selection(attempts="all"), None, 99)) == everything
    first = [(1, True, 3), (2, True, 3), (3, True, 3), (4, False, 1), (9, False, None)]
    assert shown(iterations(ledger, Selection(attempts=0), None, 99)) == first


def test_iterations_keep_to_range_limit_and_rank() -> None:
    """A page is the first so many of a range; a rank sees its own numbers only."""
    ledger = restarted()
    assert shown(iterations(ledger, Selection(first=2), None, 2)) == [(2, True, 3), (3, True, 5)]
    assert shown(iterations(ledger, Selection(last=2), 1, 9)) == [(1, True, 2), (2, True, 2)]
    assert shown(iterations(ledger, Selection(first=3, last=3), 1, 9)) == [(3, True, None)]
    assert iterations(ledger, Selection(), None, 0) == []
    assert iterations(ledger, Selection(first=5, last=2), None, 9) == []


def test_range_totals_fold_the_pages_of_the_range() -> None:
    """A range adds up its iterations; the whole is what is kept ready."""
    ledger = restarted()
    counts = [
        range_totals(ledger, selection).series[SERIES].count
        for selection in (
            Selection(),
            Selection(last=2),
            Selection(first=3),
            Selection(first=3, attempts="all"),
            Selection(first=2, last=3, attempts=0),
        )
    ]
    assert counts == [11, 6, 5, 9, 6]
    assert plain(range_totals(ledger, Selection(first=7, last=8)).series) == {}


def test_newest_complete_is_of_the_attempt_that_counts() -> None:
    """The newest complete iteration that is not superseded, folded over its ranks."""
    newest = newest_complete(restarted())
    assert newest is not None
    assert shown([newest]) == [(3, True, 5)]


def test_newest_complete_skips_what_a_later_attempt_replaced() -> None:
    """A restart that has completed nothing leaves the newest one before it."""
    done = [(i, 1) for i in range(6)]
    ledger = ledger_of(
        report(0, [partial(i) for i in range(6)], commits=done, world_size=1),
        report(0, [partial(3)], attempt=1, world_size=1),
    )
    newest = newest_complete(ledger)
    assert newest is not None
    assert newest.iteration == 2


def test_nothing_is_newest_where_nothing_is_complete() -> None:
    """A run that has only begun has no complete iteration."""
    assert newest_complete(ledger_of(report(0, [partial()]))) is None


def test_iteration_of_one_rank_leaves_global_values_out() -> None:
    """What is already reduced belongs to no rank."""
    ledger = ledger_of(report(0, scalars=[scalar("g", is_global=True), scalar("k")]))
    everyone, own, nobody = (
        iterations(ledger, Selection(), rank, 1)[0].table for rank in (None, 0, GLOBAL)
    )
    assert [sorted(t.scalars) for t in (everyone, own, nobody)] == [["g", "k"], ["k"], ["g"]]
