"""One attempt: iteration sets, reporters, superseding and where pages are."""

from __future__ import annotations

import pytest

from rankfold.attempt import Attempt
from rankfold.facts import Launch
from rankfold.fold import Fold, Place, ScalarFold
from rankfold.page import GLOBAL, Page
from rankfold.rules import Rule
from rankfold.scope import Gains
from unit.core.builders import Shelf, dirty, ledger_of, partial, plain, report


def new_attempt() -> Attempt:
    """Return an attempt that nobody has reported to."""
    return Attempt(0, Launch(5.0))


def test_attempt_knows_its_reporters() -> None:
    """The last report is the latest of any rank; what was dropped adds up and never falls."""
    attempt = new_attempt()
    assert (attempt.last_report, attempt.expected, attempt.dropped) == (5.0, 0, 0)
    attempt.hear(0, 9.0, 2, 6)
    attempt.hear(1, 7.0, 1, None)
    attempt.hear(0, 6.0, 1, 5)
    assert (attempt.last_report, attempt.expected, attempt.dropped) == (9.0, 2, 3)
    assert [attempt.reporters[rank].last_iteration for rank in (0, 1)] == [6, None]
    attempt.launch.world_size = 4
    assert attempt.expected == 4


def test_attempt_of_one_rank_alone_expects_no_other() -> None:
    """However large the world is, these books are of one rank."""
    alone = Attempt(0, Launch(5.0, world_size=4), alone=True)
    assert alone.expected == 1


def test_attempt_without_anything_has_nothing_to_read() -> None:
    """No iteration, no complete one, no cut."""
    attempt = new_attempt()
    assert attempt.last_iteration is None
    assert attempt.newest_complete() is None
    assert attempt.last_effective is None
    assert attempt.wholly_superseded is False
    assert attempt.effective is attempt.everything


@pytest.mark.parametrize(("cut", "wholly"), [(3, True), (4, True), (5, False)])
def test_attempt_is_wholly_superseded_from_its_first_iteration_on(cut: int, wholly: bool) -> None:
    """Only a cut at or below everything that it reported replaces all of it."""
    attempt = ledger_of(report(partials=[partial(4)])).attempts[0]
    attempt.supersede(cut)
    assert attempt.wholly_superseded is wholly
    assert attempt.last_effective == cut - 1


def test_attempt_that_reported_no_iteration_is_superseded_by_any() -> None:
    """There is nothing of it that could stay."""
    attempt = new_attempt()
    attempt.supersede(7)
    assert attempt.wholly_superseded is True


def test_attempt_supersedes_from_the_lowest_cut() -> None:
    """A later, higher cut brings nothing back."""
    attempt = ledger_of(report(partials=[dirty(i) for i in range(6)])).attempts[0]
    counts = []
    for cut in (4, 2, 5):
        attempt.supersede(cut)
        counts.append(sum(fold.count for fold in attempt.effective.table.series.values()))
    assert (counts, attempt.cut) == ([4, 2, 2], 2)


def test_attempt_folds_late_arrivals_into_what_they_belong_to() -> None:
    """What arrives for a superseded iteration counts in everything, and nowhere else."""
    attempt = new_attempt()
    attempt.supersede(3)
    for iteration in (2, 3):
        page = attempt.open_page(iteration)
        page.enter_partials(0, "s", [(0, 0, 8, 0, 0.0, 0.0)])
        attempt.fold_series(iteration, 0, "s", Fold(1, 8))
        gains = Gains()
        gains.series.append((iteration, "s", Fold(1, 8)))
        attempt.add(0, gains)
        for rank, key in ((0, "k"), (GLOBAL, "g")):
            page.enter_scalars(rank, key, [(0, 1.0, 1, Rule.SUM)])
            value = ScalarFold.of(1.0, 1, Place(iteration, 0, rank, 0))
            attempt.fold_scalar(iteration, rank, key, value)
            gains = Gains()
            gains.scalars.append((iteration, key, value))
            attempt.add(rank, gains)
    for scope, times in ((attempt.everything, 2), (attempt.effective, 1)):
        assert scope.of(None).series == {"s": Fold(times, 8 * times)}
        assert {key: f.values for key, f in scope.of(None).scalars.items()} == dict.fromkeys(
            "kg", times
        )
        assert (list(scope.of(0).series), list(scope.of(0).scalars)) == (["s"], ["k"])
        assert plain(scope.of(9)) == {"series": {}, "scalars": {}}


def test_attempt_has_no_page_of_what_was_not_reported() -> None:
    """Without a place to load from, an unknown page is an error of the caller."""
    with pytest.raises(KeyError):
        new_attempt().page(3)


def test_attempt_forgets_saved_old_pages_only() -> None:
    """Pages that changed or are among the newest stay in memory; a copy changes nothing."""
    shelf = Shelf()
    ledger = shelf.ledger()
    rows = [partial(i) for i in range(6)]
    done = [(i, 1) for i in (0, 1, 3, 4, 5)]  # iteration 2 stays incomplete
    ledger.apply(report(partials=rows, commits=done, world_size=1), 1.0)
    attempt = ledger.attempts[0]
    attempt.forget_pages(0)  # nothing was saved yet
    shelf.save(ledger, keep=6)
    ledger.apply(report(partials=[partial(0, 1), partial(1)], world_size=1), 2.0)
    attempt.forget_pages(2)
    held = []
    for iteration in range(6):
        before = shelf.loads
        assert isinstance(attempt.page(iteration), Page)
        held.append(shelf.loads == before)
    assert held == [True, False, False, False, True, True]


def test_attempt_keeps_what_is_going_on_through_a_save() -> None:
    """An incomplete iteration that changed since the last save stays, once; without any, none."""
    shelf = Shelf()
    ledger = shelf.ledger()
    ledger.apply(report(partials=[partial(i) for i in range(6)], world_size=2), 1.0)
    attempt = ledger.attempts[0]
    held = []
    for keep, changed in ((2, [0, 1, 2, 3, 4, 5]), (2, []), (0, [])):
        assert attempt.clean() == changed
        attempt.forget_pages(keep)
        held.append([i for i in range(6) if attempt.held(i)])
        for iteration in changed:
            shelf.put(0, iteration, attempt.page(iteration))
    assert held == [[0, 1, 2, 3, 4, 5], [4, 5], []]


def test_contents_of_many_iterations_are_freed_over_several_reports() -> None:
    """The report that completes them all lets go of them, and frees as many as any other."""
    ledger = ledger_of()
    iterations, cells = 20, 5
    for rank in range(2):
        rows = [
            partial(i, m, series=f"s{cell}")
            for i in range(iterations)
            for cell in range(cells)
            for m in range(2)
        ]
        done = [(i, 2) for i in range(iterations)]
        ledger.apply(report(rank, rows, commits=done, world_size=2), 1.0, keep=1)
    attempt = ledger.attempts[0]
    left = [len(attempt._gone)]
    while attempt._gone:
        ledger.apply(report(0), 2.0, keep=1)
        left.append(len(attempt._gone))
    assert left == [190, 126, 62, 0]
    assert not any(
        cell.contents for i in range(19) for cell in attempt.page(i).series["s0"].values()
    )


def test_attempt_loads_no_page_to_hear_of_another_rank_or_size() -> None:
    """A rank that joins takes every completeness back without a look at the pages."""
    shelf = Shelf()
    ledger = shelf.ledger()
    rows, done = [partial(i) for i in range(20)], [(i, 1) for i in range(20)]
    ledger.apply(report(0, rows, commits=done), 1.0)
    shelf.save(ledger)
    attempt = ledger.attempts[0]
    assert attempt.newest_complete() == 19
    ledger.apply(report(1), 2.0)
    assert (attempt.newest_complete(), attempt.incomplete) == (None, set(range(20)))
    ledger.apply(report(1, world_size=3), 3.0)
    assert (attempt.newest_complete(), shelf.loads) == (None, 0)


def test_attempt_reads_the_folds_of_an_iteration_once_until_they_change() -> None:
    """A scrape asks for those of the newest complete iteration again and again."""
    shelf = Shelf()
    ledger = shelf.ledger()
    ledger.apply(report(0, [dirty(0), dirty(1)]), 1.0)
    attempt = ledger.attempts[0]

    def counts(iteration: int) -> list[int]:
        return [fold.count for fold in attempt.table(iteration).series.values()]

    held = counts(0)
    shelf.save(ledger)
    assert [counts(0), counts(0), shelf.loads] == [held, held, 1]
    assert [counts(1), counts(0), shelf.loads] == [held, held, 3]
    ledger.apply(report(0, [dirty(0, microbatch=1)]), 2.0)
    changed = counts(0)
    assert changed == [2 * held[0]]
    shelf.save(ledger)
    assert [counts(0), counts(0), shelf.loads] == [changed, changed, 5]


def test_attempt_keeps_what_is_complete_when_its_size_is_what_reported() -> None:
    """A world size that equals the ranks that reported changes no completeness."""
    ledger = ledger_of(
        report(0, [partial()], commits=[(0, 1)]),
        report(1, [partial()], commits=[(0, 1)]),
        report(0, world_size=2),
    )
    assert ledger.attempts[0].newest_complete() == 0
