"""Runs are saved a few at a time: whatever the tables have and lack, a start finds everything."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.answering import everything
from rankfold.attempt import Attempt
from rankfold.audit import audit
from rankfold.errors import NotFound, StoreUnavailable
from rankfold.rules import RuleSet
from rankfold.wire import Receipt, Report
from rankfold_service.store import Arrival, Store
from rankfold_service.store import saving as subject
from rankfold_service.store.backlog import Backlog
from rankfold_service.store.shelf import HOT_ITERATIONS
from rankfold_service.store.sqlite import SqliteStore
from support.reports import SERIES, partial, report
from unit.service.store.saved_often import (
    new_reference,
    one,
    open_store,
    operations,
    save_next,
)


@pytest.fixture(autouse=True)
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave so little time that after each commit the save of one run goes one step on."""
    monkeypatch.setattr(Backlog, "late", 0.0)
    monkeypatch.setattr(subject, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(subject, "MOST_SECONDS", 0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the store lives."""
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """Yield a store that saves a run after every commit."""
    opened = open_store(path)
    yield opened
    opened.file.close()


def take(store: Store, *taken: Report) -> list[object]:
    """Hand reports over in one commit."""
    return list(store.ingest([Arrival(r, float(i)) for i, r in enumerate(taken)]))


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    """Return what a query finds in a store's file."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def killed(store: SqliteStore) -> SqliteStore:
    """Open what a killed process leaves."""
    store.file.close()
    return open_store(store.file.path)


def act(store: Store, operation: object) -> object:
    """Carry an operation out that every store knows; return what it answers."""
    if isinstance(operation, Report):
        return repr(take(store, operation))
    match operation:
        case ("finish", str(run), int(attempt)):
            with suppress(NotFound):
                store.finish("default", run, attempt)
        case ("delete", str(run)):
            with suppress(NotFound):
                store.delete("default", run)
    return None


def tend(store: SqliteStore, operation: object) -> SqliteStore:
    """Carry an operation out that changes no answer; return the store that goes on."""
    match operation:
        case "step":
            store.maintain()
        case "save":
            save_next(store)
        case "checkpoint":
            store.checkpoint()
        case "kill":
            return killed(store)
        case "close":
            store.close()
            return open_store(store.file.path)
    return store


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(operations(), max_size=25), st.sampled_from([1, 300, 3000]))
def test_store_killed_at_any_point_is_what_was_acknowledged(
    operations: list[object], distance: int
) -> None:
    """Reports, finishes and deletes, with kills and saves of single runs anywhere in between."""
    reference = new_reference()
    with TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "store.db")
        store._saver.backlog.distance = distance
        try:
            for operation in operations:
                assert act(store, operation) == act(reference, operation)
                store = tend(store, operation)
            store = killed(store)
            assert repr(everything(store)) == repr(everything(reference))
            assert [f for name in store.names() for f in audit(store.run(*name))] == []
        finally:
            store.file.close()


def test_save_takes_runs_in_turn_and_keeps_what_the_others_need(
    path: Path, store: SqliteStore
) -> None:
    """The journal is let go of up to the first row that some run still needs."""
    for number in range(4):
        take(store, one(f"run-{number}"))
    left = []
    for iteration in range(1, 4):
        save_next(store)
        left.append(rows(path, "SELECT min(seq), max(seq) FROM journal"))
        take(store, one("run-3", iteration))
    assert left == [[(2, 4)], [(3, 5)], [(4, 6)]]
    saved = rows(path, "SELECT name, applied FROM run")
    assert saved == [("run-0", 4), ("run-1", 5), ("run-2", 6)]


def test_start_replays_of_a_run_what_its_row_lacks(path: Path, store: SqliteStore) -> None:
    """What was saved is not applied again, although the journal still has it."""
    take(store, one("other"))
    take(store, one("run", 0, valid=8))
    save_next(store)
    take(store, one("other", 1))
    take(store, one("run", 1, valid=8))
    save_next(store)  # saves "run", which has waited longer than what "other" has reported since
    assert rows(path, "SELECT name, applied FROM run ORDER BY name") == [("other", 2), ("run", 4)]
    assert rows(path, "SELECT seq FROM journal") == [(3,), (4,)]
    store = killed(store)
    assert list(store._saver.backlog) == [("default", "other")]
    totals = store.run("default", "run").totals("all").series[SERIES]
    assert (totals.partials, totals.valid) == (2, 16)
    assert take(store, one("run", 1), one("other", 1)) == [Receipt(0, 1, 0), Receipt(0, 1, 0)]
    store.file.close()


def test_rows_of_the_journal_are_numbered_on_after_it_was_empty(path: Path) -> None:
    """A number that came again would be below what a run's row says that it has, and skipped."""
    for start in range(1, 4):
        store = open_store(path)
        for number in range(3):
            take(store, one("run", start * 10 + number))
        newest = 3 * start
        assert rows(path, "SELECT max(seq) FROM journal") == [(newest,)]
        store = killed(store)
        assert store.run("default", "run").totals("all").series[SERIES].partials == newest
        store.close()
        assert rows(path, "SELECT count(*) FROM journal") == [(0,)]
        assert rows(path, "SELECT applied FROM run") == [(newest,)]


def test_deleted_run_leaves_the_tables_before_its_reports_leave_the_journal(path: Path) -> None:
    """A start does not stumble over a finish or a delete of which the beginning is gone."""
    store = open_store(path)
    take(store, one("run"))
    take(store, one("other"))
    store.finish("default", "run", 0)
    take(store, one("other", 1))
    store.delete("default", "run")
    save_next(store)
    assert rows(path, "SELECT seq FROM journal") == [(2,), (3,), (4,), (5,)]
    store = killed(store)
    assert store.names() == [("default", "other")]
    take(store, one("run", 7, valid=3))
    store = killed(store)
    assert store.run("default", "run").totals("all").series[SERIES].valid == 3
    assert not store.run("default", "run").finished
    store.close()
    assert rows(path, "SELECT name FROM run ORDER BY name") == [("other",), ("run",)]
    assert rows(path, "SELECT count(*) FROM page") == [(3,)]


def test_save_that_fails_is_forgotten_and_tried_later(path: Path, store: SqliteStore) -> None:
    """Memory is read again from the file, which lost nothing; later the tables catch up."""
    for number in range(3):
        take(store, one(f"run-{number}"))
    store.finish("default", "run-1", 0)
    store.delete("default", "run-2")
    before = everything(store)
    store.file.connection.execute("PRAGMA busy_timeout = 0")
    with closing(sqlite3.connect(path)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        store.maintain()
        with pytest.raises(StoreUnavailable, match="SQLITE_BUSY"):
            store.checkpoint()
    assert everything(store) == before
    store.checkpoint()
    assert everything(store) == before
    assert rows(path, "SELECT name FROM run ORDER BY name") == [("run-0",), ("run-1",)]


def iterate(store: SqliteStore, iterations: range, run: str = "run") -> Attempt:
    """Report complete iterations, each in a commit of its own."""
    for iteration in iterations:
        commits = [{"iteration": iteration, "microbatches": 2}]
        rows_ = [partial(iteration=iteration, microbatch=m) for m in range(2)]
        take(store, report(run=run, world_size=1, partials=rows_, commits=commits))
    return store.run("default", run).latest


def test_old_pages_are_packed_before_their_run_is_saved(path: Path, store: SqliteStore) -> None:
    """A run with many iterations does not hold the next commit up by all of them at once."""
    attempt = iterate(store, range(20))
    left = []
    while attempt.dirty:
        left.append(len(attempt.dirty))
        assert rows(path, "SELECT count(*) FROM page") == [(0,)]
        store.maintain()
    assert left == [*range(20, HOT_ITERATIONS - 1, -1)]
    save_next(store)
    assert rows(path, "SELECT count(*) FROM page") == [(20,)]


def test_saving_goes_on_while_every_run_reports(path: Path, store: SqliteStore) -> None:
    """Where as much comes as is packed, those runs are saved whose old pages are packed."""
    runs = [f"run-{number:02}" for number in range(20)]
    for run in runs:
        iterate(store, range(6), run)
    for iteration in range(6, 12):
        for run in runs:
            iterate(store, range(iteration, iteration + 1), run)
            store.maintain()
    ((saved,),) = rows(path, "SELECT count(*) FROM run")
    assert saved > len(runs) // 2


def begin_save(store: SqliteStore) -> None:
    """Go on until a snapshot is taken and not written."""
    while not store._saver.backlog._in_save:
        store.maintain()


def test_reports_that_come_during_a_save_wait_for_the_next(path: Path, store: SqliteStore) -> None:
    """What is written is of one moment, pages and head, and a start adds the rest once."""
    iterate(store, range(3))
    begin_save(store)
    late = [partial(iteration=2, microbatch=5, valid=64), partial(iteration=9, valid=64)]
    assert take(store, report(partials=late)) == [Receipt(1, 0, 1)]
    expected = everything(store)
    save_next(store)
    assert rows(path, "SELECT applied FROM run") == [(3,)]
    assert rows(path, "SELECT iteration FROM page") == [(0,), (1,), (2,)]
    assert rows(path, "SELECT seq FROM journal") == [(4,)]
    store = killed(store)
    assert everything(store) == expected
    assert take(store, report(partials=late)) == [Receipt(0, 1, 1)]
    store.file.close()


@pytest.mark.parametrize("again", [False, True])
def test_run_that_is_deleted_during_its_save_stays_deleted(
    path: Path, store: SqliteStore, again: bool
) -> None:
    """The save that goes on writes it once more, and the next one takes it away."""
    iterate(store, range(3))
    begin_save(store)
    store.delete("default", "run")
    if again:
        take(store, one("run", 7, valid=3))
    expected = everything(store)
    save_next(store)
    assert rows(path, "SELECT count(*) FROM page") == [(3,)]
    store = killed(store)
    assert everything(store) == expected
    store.checkpoint()
    assert everything(store) == expected
    assert rows(path, "SELECT iteration FROM page") == [(7,)] * again
    store.close()


def test_iteration_that_goes_on_is_not_unpacked_after_each_save(store: SqliteStore) -> None:
    """However many are incomplete at once, a rank's next report finds them in memory."""
    for rank in range(2):
        done = [partial(iteration=iteration) for iteration in range(12)]
        take(store, report(rank=rank, world_size=4, partials=done))
        store.checkpoint()
        assert all(store.run("default", "run").latest.held(i) for i in range(12))
    take(store, one("run", 12))
    store.checkpoint()
    assert not any(store.run("default", "run").latest.held(i) for i in range(11))


def test_pages_that_are_folded_away_soon_stay_in_memory(path: Path) -> None:
    """They are packed for the save all the same, and are not unpacked to be folded away."""
    with closing(SqliteStore(path, RuleSet(), checkpoint_bytes=1, keep_iterations=8)) as store:
        attempt = iterate(store, range(20))
        while attempt.dirty:
            store.maintain()
            assert all(attempt.held(iteration) for iteration in range(12, 20))
        save_next(store)
        assert not any(attempt.held(iteration) for iteration in range(12))
        assert rows(path, "SELECT count(*) FROM page") == [(20,)]


def test_page_that_changes_after_it_was_packed_is_saved_as_it_is_then(path: Path) -> None:
    """What was made ready of it is not what the table gets."""
    with closing(SqliteStore(path, RuleSet(), checkpoint_bytes=1, keep_iterations=8)) as store:
        attempt = iterate(store, range(20))
        while 13 in attempt.dirty:
            store.maintain()
        assert take(store, report(partials=[partial(iteration=13, valid=9)])) == [Receipt(0, 0, 1)]
        assert 13 in attempt.dirty
        save_next(store)
        expected = everything(store)
    with closing(open_store(path)) as again:
        assert rows(path, "SELECT count(*) FROM journal") == [(0,)]
        assert everything(again) == expected
        assert len(again.run("default", "run").latest.page(13).conflicts) == 1


def test_runs_that_fall_silent_leave_memory(store: SqliteStore) -> None:
    """However many runs there are, those that reported lately have pages in memory."""
    for number in range(30):
        take(store, one(f"run-{number:02}"))
        save_next(store)
    in_memory = [
        name
        for name, ledger in store.ledgers.items()
        if any(a._pages for a in ledger.attempts.values())
    ]
    assert len(in_memory) <= 3
    assert ("default", "run-29") in in_memory
