"""The embedded store when its disk fails: nothing is answered that is not on disk."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from contract.answering import everything
from rankfold.errors import StoreDamaged, StoreRefused, StoreUnavailable
from rankfold.rules import RuleSet
from rankfold.wire import Receipt, Report
from rankfold_service.store import Arrival
from rankfold_service.store.record import Entry, pack
from rankfold_service.store.sqlite import SqliteStore
from support.reports import SERIES, partial, report


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the store lives."""
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """Yield an open store."""
    opened = SqliteStore(path, RuleSet())
    yield opened
    opened.file.close()


def batch(iteration: int, size: int = 2000) -> Report:
    """Return a report of many partials of one iteration."""
    rows = [partial(iteration=iteration, microbatch=m, valid=m) for m in range(1, size)]
    return report(partials=rows)


def limit_pages(store: SqliteStore, pages: int) -> None:
    """Make the database as full as a full disk would."""
    store.file.connection.execute(f"PRAGMA max_page_count = {pages}")


def test_full_disk_refuses_the_whole_commit_and_recovers(store: SqliteStore) -> None:
    """A commit that does not fit applies nothing; once there is room the same report is taken."""
    assert store.ingest([Arrival(batch(0, 10), 1.0)]) == [Receipt(9, 0, 0)]
    before = everything(store)
    limit_pages(store, 1)
    with pytest.raises(StoreUnavailable, match="SQLITE_FULL"):
        store.ingest([Arrival(batch(1), 2.0)])
    assert everything(store) == before
    limit_pages(store, 100_000)
    assert store.ingest([Arrival(batch(1), 2.0)]) == [Receipt(1999, 0, 0)]


def test_failed_finish_and_delete_are_forgotten(store: SqliteStore) -> None:
    """What could not be written did not happen."""
    store.ingest([Arrival(batch(0), 1.0)])
    blocker = sqlite3.connect(store.file.path)
    blocker.execute("BEGIN IMMEDIATE")
    store.file.connection.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(StoreUnavailable, match="SQLITE_BUSY"):
        store.finish("default", "run", 0)
    with pytest.raises(StoreUnavailable, match="SQLITE_BUSY"):
        store.delete("default", "run")
    with pytest.raises(StoreUnavailable, match="SQLITE_BUSY"):
        store.probe()
    blocker.close()
    assert not store.run("default", "run").finished
    store.finish("default", "run", 0)
    assert store.run("default", "run").finished


def test_failed_tidying_loses_nothing_and_fails_no_report(path: Path) -> None:
    """When tables cannot be brought up to date, the journal still has everything."""
    store = SqliteStore(path, RuleSet(), checkpoint_bytes=200_000)
    store.ingest([Arrival(batch(i, 500), 1.0) for i in range(3)])
    (pages,) = store.file.connection.execute("PRAGMA page_count").fetchone()
    # Room for the next journal row, none for the tables on top of it.
    limit_pages(store, pages + 25)
    assert store.ingest([Arrival(batch(3, 1500), 2.0)]) == [Receipt(1499, 0, 0)]
    store.maintain()
    before = everything(store)
    store.file.close()
    again = SqliteStore(path, RuleSet())
    assert everything(again) == before
    again.close()


def test_log_stays_short_under_many_small_writes(path: Path) -> None:
    """Probes and tiny reports do not let SQLite's log grow, also while a backup reads."""
    store = SqliteStore(path, RuleSet(), checkpoint_bytes=20_000)
    wal = path.with_name("store.db-wal")
    longest = 0
    for number in range(200):
        store.probe()
        store.ingest([Arrival(report(partials=[partial(iteration=number)]), 1.0)])
        store.maintain()
        longest = max(longest, wal.stat().st_size)
    assert longest < 600_000
    reader = sqlite3.connect(path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM run").fetchone()
    for number in range(200, 260):
        store.ingest([Arrival(report(partials=[partial(iteration=number)]), 1.0)])
    reader.close()
    store.maintain()
    while store.file._writing_back is not None:
        store.maintain()
    assert wal.stat().st_size <= 320_000
    assert store.run("default", "run").totals("all").series[SERIES].partials == 260
    store.close()


def test_journal_stays_bounded_under_nothing_but_new_runs(path: Path) -> None:
    """However much each checkpoint writes, what a start has to replay does not grow with it."""
    store = SqliteStore(path, RuleSet(), checkpoint_bytes=20_000)
    longest = written = 0
    for number in range(60):
        rows = [partial(iteration=iteration, valid=number + 1) for iteration in range(100)]
        store.ingest([Arrival(report(run=f"run-{number}", partials=rows), 1.0)])
        store.maintain()
        query = "SELECT coalesce(sum(length(records)), 0) FROM journal"
        (waiting,) = store.file.connection.execute(query).fetchone()
        written += len(pack(Entry("report", 1.0, 16, report(run=f"run-{number}", partials=rows))))
        longest = max(longest, waiting)
    store.close()
    # Saving takes its turns by the clock, so that a slow machine is a little behind.
    assert 10_000 < longest <= 100_000 < written


def test_killed_store_answers_the_same_after_a_restart(path: Path, store: SqliteStore) -> None:
    """What was acknowledged is there although nothing was closed."""
    store.ingest([Arrival(batch(0), 1.0)])
    store.finish("default", "run", 0)
    before = everything(store)
    store.file.close()
    again = SqliteStore(path, RuleSet())
    assert everything(again) == before
    again.close()


def test_closed_store_leaves_tables_and_no_journal(path: Path, store: SqliteStore) -> None:
    """A tidy end leaves nothing to replay and no log beside the file."""
    store.ingest([Arrival(batch(0), 1.0)])
    store.close()
    assert not os.path.exists(f"{path}-wal")
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM journal").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM page").fetchone() == (1,)
    connection.close()


def test_closed_store_gives_back_what_it_does_not_need(path: Path, store: SqliteStore) -> None:
    """What the journal took and deletes left is returned to the disk at the end."""
    for iteration in range(5):
        store.ingest([Arrival(batch(iteration), 1.0)])
    grown = store.size()
    store.delete("default", "run")
    store.close()
    assert path.stat().st_size < grown / 4


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE journal SET records = CAST(records || x'00' AS BLOB)",
        "UPDATE journal SET records = x''",
        "UPDATE journal SET records = zeroblob(200)",
    ],
)
def test_damaged_journal_is_refused(path: Path, store: SqliteStore, damage: str) -> None:
    """A journal whose checksum does not fit is not believed in part."""
    store.ingest([Arrival(batch(0), 1.0)])
    store.file.close()
    connection = sqlite3.connect(path)
    connection.execute(damage)
    connection.commit()
    connection.close()
    with pytest.raises(StoreRefused, match="is damaged"):
        SqliteStore(path, RuleSet())


@pytest.mark.parametrize("table", ["run", "journal"])
def test_damaged_schema_is_refused(path: Path, store: SqliteStore, table: str) -> None:
    """A name of a column that is not what it was is damage like any other."""
    store.ingest([Arrival(batch(0), 1.0)])
    store.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema = ON")
    change = "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = ?"
    for column in ("head", "records"):
        connection.execute(change, (column, column[::-1], table))
    connection.commit()
    connection.close()
    with pytest.raises(StoreRefused, match=r"is damaged \(no such column: .* nothing was changed"):
        SqliteStore(path, RuleSet())


def test_file_that_is_gone_at_the_end_is_told(path: Path, store: SqliteStore) -> None:
    """An aggregator that ends well has kept what it acknowledged."""
    store.ingest([Arrival(batch(0), 1.0)])
    path.unlink()
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        store.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_file_that_is_gone_is_noticed(path: Path, store: SqliteStore, replaced: bool) -> None:
    """Nothing is acknowledged into a file that no restart would find."""
    store.ingest([Arrival(batch(0), 1.0)])
    path.rename(path.with_suffix(".moved"))
    if replaced:
        path.write_bytes(b"")
    for write in (store.probe, lambda: store.ingest([Arrival(batch(1), 2.0)])):
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            write()
    if replaced:
        path.unlink()
    path.with_suffix(".moved").rename(path)
    assert store.ingest([Arrival(batch(1), 2.0)]) == [Receipt(1999, 0, 0)]


@pytest.mark.parametrize("replaced", [False, True])
def test_log_that_is_gone_is_noticed_and_saved(
    path: Path, store: SqliteStore, replaced: bool
) -> None:
    """What is in SQLite's open log only is nothing that a kill leaves; a stop saves it."""
    log = path.with_name(f"{path.name}-wal")
    store.ingest([Arrival(batch(0), 1.0)])
    log.unlink()
    if replaced:
        log.write_bytes(b"")
    for write in (store.probe, lambda: store.ingest([Arrival(batch(1), 2.0)])):
        with pytest.raises(StoreUnavailable, match="stop the aggregator with SIGTERM"):
            write()
    store.close()
    again = SqliteStore(path, RuleSet())
    assert again.ingest([Arrival(batch(0), 3.0), Arrival(batch(1), 3.0)]) == [
        Receipt(0, 1999, 0),
        Receipt(1999, 0, 0),
    ]
    again.close()


@pytest.mark.parametrize(
    "damage",
    ["UPDATE page SET body = x'00' WHERE iteration = 0", "DELETE FROM page WHERE iteration = 0"],
)
def test_damaged_page_is_an_error_of_the_store(path: Path, damage: str) -> None:
    """A page that cannot be read, or is gone, is said to be damaged, and answers nothing."""
    store = SqliteStore(path, RuleSet(), checkpoint_bytes=1, keep_iterations=1)
    for iteration in range(3):
        store.ingest([Arrival(batch(iteration, 10), 1.0)])
    store.close()
    store = SqliteStore(path, RuleSet(), keep_iterations=1)
    store.file.connection.execute(damage)
    with pytest.raises(StoreDamaged, match="is damaged at iteration 0"):
        store.run("default", "run").latest.page(0)
    store.close()


@pytest.mark.parametrize("again", [0, 1])
def test_damage_met_by_a_report_leaves_memory_trusted(path: Path, again: int) -> None:
    """Neither what it works on nor what is folded away after it makes the store read all again."""
    store = SqliteStore(path, RuleSet(), checkpoint_bytes=1, keep_iterations=1)
    for iteration in range(2):
        commits = [{"iteration": iteration, "microbatches": 1}]
        rows = [partial(iteration=iteration)]
        store.ingest([Arrival(report(world_size=1, partials=rows, commits=commits), 1.0)])
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE page SET body = x'00' WHERE iteration = 1")
    store = SqliteStore(path, RuleSet(), keep_iterations=1)
    ledger = store.run("default", "run")
    late = report(partials=[partial(iteration=2), partial(iteration=again)])
    (outcome,) = store.ingest([Arrival(late, 2.0)])
    assert isinstance(outcome, StoreDamaged)
    assert store.run("default", "run") is ledger
    assert list(ledger.latest.paged) == [0, 1]
    store.close()


def test_page_that_sqlite_finds_damaged_is_damage_of_that_run(path: Path) -> None:
    """A report that needs it is refused by itself; the file goes on serving the others."""
    store = SqliteStore(path, RuleSet(), checkpoint_bytes=1, keep_iterations=1)
    store.ingest([Arrival(batch(0, 10), 1.0)])
    store.close()
    root = "SELECT rootpage FROM sqlite_schema WHERE name = 'page'"
    store = SqliteStore(path, RuleSet())
    (number,) = store.file.connection.execute(root).fetchone()
    (size,) = store.file.connection.execute("PRAGMA page_size").fetchone()
    store.file.connection.execute("PRAGMA shrink_memory")
    with path.open("r+b") as file:
        file.seek((number - 1) * size)
        file.write(b"\xff" * size)
    other = report(run="other", partials=[partial()])
    damaged, receipt = store.ingest([Arrival(batch(0, 20), 2.0), Arrival(other, 2.0)])
    store.file.close()
    assert isinstance(damaged, StoreDamaged)
    assert receipt == Receipt(1, 0, 0)


@pytest.mark.parametrize("row", [-1, 2**60 + 1, 2**63 - 1])
@pytest.mark.parametrize("change", ["UPDATE run SET applied = ?", "UPDATE journal SET seq = ?"])
def test_impossible_row_of_the_journal_refuses_the_store(path: Path, change: str, row: int) -> None:
    """At the start, not once a report finds no number for its own row."""
    store = SqliteStore(path, RuleSet())
    store.ingest([Arrival(batch(0), 1.0)])
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO journal VALUES (7, ?)", (b"",))
        connection.execute(change, (row,))
        connection.commit()
    with pytest.raises(StoreRefused, match=f"is damaged \\(no journal has a row {row}\\)"):
        SqliteStore(path, RuleSet())


def test_second_store_on_the_same_file_is_refused(path: Path, store: SqliteStore) -> None:
    """Two aggregators never share a file."""
    assert store.file.path == path
    with pytest.raises(StoreRefused, match="in use by another process"):
        SqliteStore(path, RuleSet())


def test_old_pages_leave_memory_and_still_answer(path: Path) -> None:
    """Complete iterations are let go of, and a late copy of one is still a duplicate."""
    store = SqliteStore(path, RuleSet(), checkpoint_bytes=1, keep_iterations=2)
    for iteration in range(30):
        commits = [{"iteration": iteration, "microbatches": 1}]
        body = report(world_size=1, partials=[partial(iteration=iteration)], commits=commits)
        store.ingest([Arrival(body, 1.0)])
        store.maintain()
    attempt = store.run("default", "run").latest
    assert len(attempt._pages) <= 3
    late = report(partials=[partial(iteration=0)])
    changed = report(partials=[partial(iteration=1, valid=9)])
    assert store.ingest([Arrival(late, 2.0)]) == [Receipt(0, 1, 0)]
    assert store.ingest([Arrival(changed, 2.0)]) == [Receipt(0, 0, 1)]
    assert store.run("default", "run").totals("all").series[SERIES].partials == 30
    store.close()
