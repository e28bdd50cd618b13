"""What was expected against what was reported."""

from __future__ import annotations

import pytest

from rankfold.coverage import LISTED, Coverage, Missing, Selection, coverage, missing_by_rank
from rankfold.errors import NotFound
from rankfold.wire import Report
from unit.core.builders import OTHER, SERIES, Shelf, ledger_of, partial, report


def full(rank: int, *iterations: int, **rest: object) -> Report:
    """Return one committed microbatch of each iteration."""
    return report(
        rank, [partial(i) for i in iterations], commits=[(i, 1) for i in iterations], **rest
    )


def covered(*reports: Report, **selection: object) -> Coverage:
    """Return the coverage of these reports."""
    return coverage(ledger_of(*reports), Selection(**selection))


def test_coverage_of_a_run_that_reported_nothing_is_empty() -> None:
    """A known run without an iteration has no first, last or gap."""
    assert covered(report(world_size=1)) == Coverage(expected=1, expected_known=True, reporting=1)


def test_coverage_is_complete_when_every_rank_committed_and_reported() -> None:
    """Both ranks of two, two iterations: nothing is owed."""
    assert covered(full(0, 3, 4, world_size=2), full(1, 3, 4)) == Coverage(
        first=3, last=4, complete=2, expected=2, expected_known=True, reporting=2
    )


def test_coverage_names_what_each_rank_owes() -> None:
    """A missing commit and missing microbatches are told apart; silent ranks are named."""
    found = covered(
        report(0, [partial(0, 1), partial(0, 0, series=OTHER)], commits=[(0, 3)], world_size=3),
        report(2, [partial(0, 0)]),
    )
    assert found == Coverage(
        first=0,
        last=0,
        incomplete=[0],
        open=[0],
        missing=[
            Missing(0, 0, 0, OTHER, (1, 2)),
            Missing(0, 0, 0, SERIES, (0, 2)),
            Missing(0, 0, 1),
            Missing(0, 0, 2),
        ],
        expected=3,
        expected_known=True,
        reporting=2,
        silent=[1],
    )


def test_coverage_without_world_size_expects_who_reported() -> None:
    """The ranks that have reported are the expected ones, and the answer says so."""
    found = covered(full(0, 0), full(5, 0), report(7))
    assert (found.expected, found.expected_known, found.reporting) == (3, False, 3)
    assert (found.missing, found.silent) == ([Missing(0, 0, 7)], [])


def test_coverage_lists_the_first_hundred() -> None:
    """Lists stay bounded, however large the world; counts are of all."""
    found = covered(report(0, commits=[(0, 0), (1, 0)], world_size=2**31 - 1))
    assert len(found.missing) == len(found.silent) == LISTED
    assert (found.missing[0], found.silent[-1]) == (Missing(0, 0, 1), 100)
    assert found.incomplete == [0, 1]


def test_coverage_of_idle_ranks_is_complete() -> None:
    """A rank that committed no microbatch owes none; an iteration of only such is not absent."""
    found = covered(
        full(0, 0, world_size=2), report(0, commits=[(1, 0)]), report(1, commits=[(0, 0), (1, 0)])
    )
    assert (found.complete, found.incomplete, found.absent) == (2, [], [])


def test_coverage_finds_iterations_without_a_series() -> None:
    """Committed, but no rank reported the series: absent, not incomplete."""
    every = full(0, 0, 1, 2, 3, world_size=1)
    other = report(0, [partial(1, series=OTHER)])
    found = covered(every, other)
    assert (found.complete, found.incomplete, found.absent) == (1, [], [0, 2, 3])
    assert covered(every, other, series=(SERIES,)).absent == []
    assert covered(every, other, series=("never",), first=1, last=2).absent == [1, 2]


def test_coverage_judges_only_the_selected_series() -> None:
    """What another series owes is no gap of this one."""
    reports = [full(0, 0, world_size=1), report(0, [partial(1), partial(1, 0, series=OTHER)])]
    reports.append(report(0, [partial(1, 1)], commits=[(1, 2)]))
    found = [covered(*reports, series=series) for series in ((SERIES,), (OTHER,), ())]
    assert [(c.complete, c.incomplete, c.absent) for c in found] == [
        (2, [], []),
        (0, [1], [0]),
        (0, [1], [0]),
    ]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (None, None, (2, 7, 1, [2, 7])),
        (3, None, (5, 7, 1, [7])),
        (None, 5, (2, 5, 1, [2])),
        (3, 4, (None, None, 0, [])),
        (8, None, (None, None, 0, [])),
        (7, 2, (None, None, 0, [])),
        (5, 5, (5, 5, 1, [])),
    ],
)
def test_coverage_keeps_to_the_range(
    first: int | None, last: int | None, expected: tuple[object, ...]
) -> None:
    """Both ends are included; an empty range is empty."""
    found = covered(
        full(0, 5, world_size=1), report(0, [partial(2), partial(7)]), first=first, last=last
    )
    assert (found.first, found.last, found.complete, found.incomplete) == expected


@pytest.mark.parametrize(("committed", "open_"), [(0, [0]), (1, [0]), (2, []), (9, [])])
def test_coverage_is_open_until_a_rank_is_two_iterations_on(
    committed: int, open_: list[int]
) -> None:
    """An iteration is in progress while no rank has committed two or more beyond it."""
    found = covered(full(0, committed, world_size=2), report(1, [partial(0)]), first=0, last=0)
    assert (found.incomplete, found.open) == ([0], open_)


def test_coverage_is_open_though_a_superseded_attempt_was_far_ahead() -> None:
    """How far the crashed attempt had come does not close the restarted one's iterations."""
    crashed = full(0, *range(90, 101), world_size=1)
    restarted = [full(0, 95, attempt=1, world_size=1), report(0, [partial(96)], attempt=1)]
    found = covered(crashed, *restarted)
    assert (found.complete, found.incomplete, found.open) == (6, [96], [96])


def test_coverage_of_a_crashed_iteration_closes_when_its_successor_moves_on() -> None:
    """An iteration before the restart that nobody healed is no longer in progress."""
    found = covered(report(0, [partial(4)], world_size=1), full(0, 5, 6, attempt=1, world_size=1))
    assert (found.incomplete, found.open, found.complete) == ([4], [], 2)


def test_coverage_of_an_absent_iteration_is_open_while_it_is_in_progress() -> None:
    """A commit may arrive before the partials that it speaks of."""
    ahead = report(0, commits=[(1, 1)], world_size=2)
    found = covered(full(0, 0, world_size=2), full(1, 0), ahead)
    assert (found.incomplete, found.absent, found.open) == ([1], [1], [1])
    alone = covered(full(0, 0, world_size=1), report(0, commits=[(1, 1)]))
    assert (alone.incomplete, alone.absent, alone.open) == ([], [1], [1])


def test_restart_heals_the_iteration_that_the_crash_cut_off() -> None:
    """Coverage is judged over what is not superseded."""
    crash = [full(0, 0, 1, world_size=2), full(1, 0)]
    healed = [full(0, 1, attempt=1, world_size=1)]
    before, after = covered(*crash), covered(*crash, *healed)
    assert (before.incomplete, before.complete) == ([1], 1)
    assert (after.incomplete, after.complete, after.expected) == ([], 2, 1)
    assert covered(*crash, *healed, attempts="all") == after
    assert covered(*crash, *healed, attempts=0) == before


def test_coverage_of_an_unknown_attempt_is_not_found() -> None:
    """Asking about an attempt that has not reported is an error, not an empty answer."""
    with pytest.raises(NotFound):
        covered(report(), attempts=3)


def test_missing_by_rank_lists_what_each_owes() -> None:
    """A rank is told what it owes, over what is not superseded, in the range that is asked for."""
    ledger = ledger_of(
        report(0, [partial(0, 0)], commits=[(0, 2), (1, 0)], world_size=2),
        full(1, 0, 1),
        report(1, [partial(2)]),
        full(1, 9),
        full(0, 5, attempt=1, world_size=2),
    )
    owed = [Missing(0, 0, 0, SERIES, (1,)), Missing(2, 0, 0)]
    assert missing_by_rank(ledger, Selection(), [0]) == ({0: owed}, None)
    assert missing_by_rank(ledger, Selection(last=1), [0]) == ({0: owed[:1]}, None)
    assert missing_by_rank(ledger, Selection(first=1), [0]) == ({0: owed[1:]}, None)
    assert missing_by_rank(ledger, Selection(attempts=1), [0]) == ({0: []}, None)
    both = {0: owed, 1: [Missing(2, 0, 1), Missing(5, 1, 1)]}
    assert missing_by_rank(ledger, Selection(), [0, 1]) == (both, None)


def test_missing_by_rank_stops_at_what_is_listed() -> None:
    """However far a rank is behind, only the first hundred gaps are looked at, and it says so."""
    shelf = Shelf()
    ledger = shelf.ledger()
    ledger.apply(full(0, *range(300), world_size=2), 1.0)
    shelf.save(ledger, keep=0)
    before = shelf.loads
    owed, until = missing_by_rank(ledger, Selection(), [0, 1])
    assert owed == {0: [], 1: [Missing(i, 0, 1) for i in range(LISTED)]}
    assert (until, shelf.loads - before) == (LISTED - 1, LISTED)


def test_coverage_of_everything_loads_no_page_of_what_is_complete() -> None:
    """Only the pages of gaps are read, and only for the first hundred things owed."""
    shelf = Shelf()
    ledger = shelf.ledger()
    ledger.apply(full(0, *range(300), world_size=2), 1.0)
    ledger.apply(full(1, *range(150)), 1.0)
    shelf.save(ledger)
    for attempt in ledger.attempts.values():
        attempt.forget_pages(0)
    assert len(coverage(ledger, Selection()).incomplete) == 150
    assert shelf.loads <= LISTED
