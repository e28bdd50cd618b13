"""When it is a run's turn to be saved, and what of the journal is needed until then."""

from __future__ import annotations

from rankfold_service.store import Name
from rankfold_service.store.backlog import Backlog


def name(number: int) -> Name:
    """Return a run's name."""
    return "p", f"run-{number}"


def save_due(backlog: Backlog) -> list[Name]:
    """Save what is due, as a store with enough time would."""
    saved = list(backlog)[: backlog.due()]
    for each in saved:
        save(backlog, each)
    return saved


def save(backlog: Backlog, run: Name, again: int = 0) -> None:
    """Save a run while nothing arrives."""
    backlog.begin(run)
    backlog.settle(run, again)


def test_backlog_tells_what_of_the_journal_is_needed() -> None:
    """From the first row that the tables lack of any run; of a saved run only what is newer."""
    backlog = Backlog(1000)
    backlog.clear(6)
    backlog.enter(7, 10, [name(0)])
    backlog.enter(8, 20, [name(1), name(0)])
    backlog.enter(9, 40, [name(2)])
    assert (backlog.first_row(), backlog.size, backlog.end, backlog.row) == (7, 70, 70, 9)
    save(backlog, name(0))
    backlog.enter(10, 80, [name(0)])
    assert list(backlog) == [name(1), name(2), name(0)]
    assert (backlog.size, backlog.first_row()) == (140, 8)
    for row in (9, 10, 11):
        save(backlog, next(iter(backlog)))
        assert backlog.first_row() == row
    assert (backlog.size, len(backlog), name(0) in backlog) == (0, 0, False)


def test_what_comes_while_a_run_is_saved_waits_for_its_next_save() -> None:
    """The journal is needed from the first row of either until the save is over."""
    backlog = Backlog(1000)
    backlog.enter(1, 10, [name(0)])
    backlog.enter(2, 20, [name(1)])
    backlog.begin(name(0))
    assert (list(backlog), backlog.first_row(), backlog.size) == ([name(1)], 2, 30)
    assert name(0) in backlog
    backlog.enter(3, 40, [name(0)])
    assert (list(backlog), backlog.first_row(), backlog.size) == ([name(1), name(0)], 2, 70)
    backlog.settle(name(0), 0)
    assert (list(backlog), backlog.first_row(), backlog.size) == ([name(1), name(0)], 2, 60)
    save(backlog, name(1))
    assert (list(backlog), backlog.first_row(), backlog.size) == ([name(0)], 3, 40)


def test_backlog_tells_how_late_a_save_is() -> None:
    """In turns of the groups that are saved together; before its turn none is."""
    backlog = Backlog(1000)
    backlog.enter(1, 1000, [name(0), name(1)])
    assert backlog.late == 0
    for row, late in ((2, 0.5), (3, 1.0), (4, 1.5)):
        backlog.enter(row, 250 if row > 2 else 750, [name(1)])
        assert backlog.late == late
    save(backlog, name(0))
    assert backlog.late == 0.5


def test_single_run_is_saved_once_in_so_many_bytes() -> None:
    """However often it reports; the first time as well."""
    backlog = Backlog(1000)
    saved_at = []
    for row in range(1, 101):
        backlog.enter(row, 50, [name(0)])
        if save_due(backlog):
            saved_at.append(backlog.end)
    assert saved_at == [1050, 2100, 3150, 4200]


def test_runs_that_all_report_are_saved_evenly() -> None:
    """Each once a round, few at a time, and what waits stays within two rounds."""
    backlog = Backlog(100_000)
    runs, most_at_once, longest = 1000, 0, 0
    saved: list[Name] = []
    for row in range(1, 20_001):
        backlog.enter(row, 50, [name(row % runs)])
        at_once = save_due(backlog)
        saved += at_once
        most_at_once = max(most_at_once, len(at_once))
        longest = max(longest, backlog.size)
    rounds = 20_000 * 50 / 100_000
    assert runs * (rounds - 3) < len(saved) <= runs * rounds
    assert most_at_once <= runs / 50
    assert longest <= 2.2 * 100_000


def test_runs_that_report_once_are_saved_within_two_rounds() -> None:
    """Nothing but new runs does not let the journal grow either."""
    backlog = Backlog(10_000)
    longest = 0
    for row in range(1, 5001):
        backlog.enter(row, 100, [name(row)])
        save_due(backlog)
        longest = max(longest, backlog.size)
    assert 10_000 <= longest <= 2.2 * 10_000


def test_backlog_that_was_saved_late_begins_a_round_of_usual_length() -> None:
    """After a time in which nothing could be saved, runs are not saved again and again for it."""
    backlog = Backlog(1000)
    for row in range(1, 101):
        backlog.enter(row, 100, [name(row % 4)])
    assert backlog.due() == 1  # the round of the run that came first
    saved = [save_due(backlog) for _ in range(10)]
    assert [len(each) for each in saved[:2]] == [1, 0]
    backlog.enter(101, 3000, [name(0)])
    assert len(save_due(backlog)) == 3
    assert save_due(backlog) == []


def test_round_is_as_long_as_what_the_last_one_wrote_again_within_a_bound() -> None:
    """So that large pages are not written for every few reports, and memory stays bounded."""
    backlog = Backlog(1000)
    distances = []
    for row, again in enumerate((500, 1500, 3000, 9000, 0, 0), 1):
        backlog.enter(2 * row, 1, [name(0)])
        backlog.enter(2 * row + 1, 5000, [name(0)])
        assert backlog.due() == 1
        save(backlog, name(0), again)
        distances.append(backlog.distance)
    assert distances == [1000, 1500, 3000, 4000, 1000, 1000]
