"""A store's files that somebody cuts off are noticed before more is acknowledged into them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rankfold.errors import StoreUnavailable
from rankfold.rules import RuleSet
from rankfold.wire import Receipt, Report
from rankfold_service.store import Arrival
from rankfold_service.store.sqlite import SqliteStore
from support.reports import partial, report


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the store lives; the name has what URLs give a meaning to."""
    return tmp_path / "a ?%41#.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """Yield an open store that has saved a run, with more of it in its journal."""
    store = SqliteStore(path, RuleSet(), checkpoint_bytes=2**16)
    for iteration in range(8):
        store.ingest([Arrival(batch(iteration), 1.0)])
    store.checkpoint()
    for _ in range(100):  # the log is written back beside the commits
        store.maintain()
        store.probe()
    store.ingest([Arrival(batch(8), 1.0)])
    yield store
    store.file.close()


def batch(iteration: int) -> Report:
    """Return a report of many partials of one iteration."""
    return report(partials=[partial(iteration=iteration, microbatch=m) for m in range(2000)])


def log_of(path: Path) -> Path:
    """Return where SQLite's log of a store is."""
    return path.with_name(f"{path.name}-wal")


@pytest.mark.parametrize(("which", "part"), [("file", 0), ("file", 0.5), ("log", 0), ("log", 0.1)])
def test_cut_is_noticed(path: Path, store: SqliteStore, which: str, part: float) -> None:
    """Nothing is acknowledged any more, now and later; readiness says so too."""
    cut = path if which == "file" else log_of(path)
    assert cut.stat().st_size > 0
    os.truncate(cut, int(cut.stat().st_size * part))
    for write in (lambda: store.ingest([Arrival(batch(9), 2.0)]), store.probe, store.probe):
        with pytest.raises(StoreUnavailable):
            write()
    with pytest.raises(StoreUnavailable, match="was cut off under the aggregator: stop"):
        store.file.execute("UPDATE probe SET at = 1")
    assert log_of(path).exists()


@pytest.mark.parametrize("then", ["nothing", "a write", "a write and a read", "a removed log"])
@pytest.mark.parametrize(("which", "part"), [("file", 0), ("file", 0.5), ("log", 0), ("log", 0.1)])
def test_cut_is_told_at_the_end(
    path: Path, store: SqliteStore, which: str, part: float, then: str
) -> None:
    """An aggregator that ends well has kept what it acknowledged, whoever noticed before."""
    cut = path if which == "file" else log_of(path)
    os.truncate(cut, int(cut.stat().st_size * part))
    if "write" in then:
        with pytest.raises(StoreUnavailable):
            store.probe()
    if "read" in then:
        assert store.names()
    if then == "a removed log":
        log_of(path).unlink()
    with pytest.raises(StoreUnavailable, match=r"cut off|could not be saved"):
        store.close()


@pytest.mark.parametrize("then", ["nothing", "a write", "a write and a read"])
def test_log_that_is_gone_is_saved_at_the_end(path: Path, store: SqliteStore, then: str) -> None:
    """What SQLite has open only is written into the file, so that nothing is lost."""
    log_of(path).unlink()
    if "write" in then:
        with pytest.raises(StoreUnavailable):
            store.probe()
    if "read" in then:
        assert store.names()
    store.close()
    again = SqliteStore(path, RuleSet())
    assert again.ingest([Arrival(batch(8), 3.0)]) == [Receipt(0, 2000, 0)]
    again.close()


def test_log_that_is_gone_and_cannot_be_saved_is_told(path: Path, store: SqliteStore) -> None:
    """As where another program still reads what the file had before."""
    store.file.connection.execute("PRAGMA busy_timeout = 0")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM run").fetchone()
        store.ingest([Arrival(batch(9), 1.0)])
        log_of(path).unlink()
        with pytest.raises(StoreUnavailable, match=r"could not be saved .*another program reads"):
            store.close()


def test_room_that_the_log_does_not_use_is_no_loss(path: Path, store: SqliteStore) -> None:
    """What SQLite has written back, and keeps the room of, is not missed."""
    log = log_of(path)
    os.truncate(log, log.stat().st_size - 4096)
    assert store.ingest([Arrival(batch(9), 2.0)]) == [Receipt(2000, 0, 0)]
    store.close()
    again = SqliteStore(path, RuleSet())
    assert again.ingest([Arrival(batch(9), 3.0)]) == [Receipt(0, 2000, 0)]
    again.close()


def test_new_store_whose_file_is_emptied_is_noticed(path: Path) -> None:
    """An empty file is a database to SQLite, and none of ours."""
    store = SqliteStore(path, RuleSet())
    os.truncate(path, 0)
    with pytest.raises(StoreUnavailable):
        store.probe()
    store.file.close()


def test_log_that_is_cut_by_sqlite_itself_is_no_alarm(path: Path, store: SqliteStore) -> None:
    """Whoever tidies up with a tool of their own has taken nothing away."""
    before = log_of(path).stat().st_size
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    assert log_of(path).stat().st_size == 0 < before
    assert store.ingest([Arrival(batch(9), 2.0)]) == [Receipt(2000, 0, 0)]


def test_file_that_is_packed_by_sqlite_is_no_alarm(path: Path, store: SqliteStore) -> None:
    """A database that became smaller by VACUUM is whole."""
    store.delete("default", report().run)
    store.checkpoint()
    before = path.stat().st_size
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("VACUUM")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert path.stat().st_size < before
    assert store.ingest([Arrival(batch(9), 2.0)]) == [Receipt(2000, 0, 0)]
    store.close()
    again = SqliteStore(path, RuleSet())
    assert again.ingest([Arrival(batch(9), 3.0)]) == [Receipt(0, 2000, 0)]
    again.close()


def test_log_that_grew_during_a_backup_is_cut_without_a_look(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store does itself is known: to look through the whole file would take long."""
    looks: list[Path] = []
    monkeypatch.setattr("rankfold_service.store.file.connect_to_read", looks.append)
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM run").fetchone()
        for iteration in range(9, 20):
            store.ingest([Arrival(batch(iteration), 1.0)])
            store.maintain()
    grown = log_of(path).stat().st_size
    for _ in range(1000):
        store.maintain()
        store.probe()
        if log_of(path).stat().st_size < grown:
            break
    assert log_of(path).stat().st_size < grown
    assert store.ingest([Arrival(batch(20), 1.0)]) == [Receipt(2000, 0, 0)]
    assert looks == []
