"""Backups: of one moment, whole or not at all, and stores themselves."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from contract.answering import everything
from rankfold.errors import StoreRefused
from rankfold.rules import RuleSet
from rankfold_service.store import Arrival
from rankfold_service.store.copying import backup
from rankfold_service.store.opening import verify
from rankfold_service.store.sqlite import SqliteStore
from support.reports import SERIES, partial, report


def quiet(left: int, total: int) -> None:
    """Take progress and do nothing."""


def take(store: SqliteStore, iteration: int) -> None:
    """Report one partial of an iteration."""
    rows = [partial(iteration=iteration, count=1, max=0.1, sum=0.1)]
    store.ingest([Arrival(report(partials=rows), 1.0)])


def test_backup_is_a_store_with_the_same_answers(tmp_path: Path) -> None:
    """Journal and tables are copied together, from a store that is in use."""
    store = SqliteStore(tmp_path / "store.db", RuleSet())
    for iteration in range(20):
        take(store, iteration)
        if iteration == 10:
            store.checkpoint()
    before = everything(store)
    assert backup(store.file.path, tmp_path / "copy.db", quiet) > 0
    take(store, 20)
    copy = SqliteStore(tmp_path / "copy.db", RuleSet())
    assert everything(copy) == before
    copy.close()
    store.close()
    assert list(verify(f"sqlite:///{tmp_path}/copy.db")) == []


def test_backup_under_load_has_all_that_was_acknowledged_before(tmp_path: Path) -> None:
    """Writing goes on during the copy, which is of one moment in between."""
    store = SqliteStore(tmp_path / "store.db", RuleSet(), checkpoint_bytes=20_000)
    copied = threading.Event()
    before: list[int] = []
    iterations = iter(range(1_000_000))

    def write() -> None:
        while not copied.is_set():
            take(store, next(iterations))

    writer = threading.Thread(target=write)
    for _ in range(50):
        take(store, next(iterations))
    before.append(50)
    writer.start()
    for number in range(5):
        backup(store.file.path, tmp_path / f"copy-{number}.db", quiet)
    copied.set()
    writer.join()
    known = [50]
    for number in range(5):
        copy = SqliteStore(tmp_path / f"copy-{number}.db", RuleSet())
        known.append(copy.run("default", "run").totals("all").series[SERIES].partials)
        copy.close()
        assert list(verify(f"sqlite:///{tmp_path}/copy-{number}.db")) == []
    assert known == sorted(known)
    assert known[-1] <= store.run("default", "run").totals("all").series[SERIES].partials
    store.close()


def test_backup_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    """A missing source, a target that is there and a full or foreign disk are told apart."""
    store = SqliteStore(tmp_path / "store.db", RuleSet())
    (tmp_path / "there.db").write_bytes(b"keep me")
    with pytest.raises(StoreRefused, match="is not there: name the store"):
        backup(tmp_path / "none.db", tmp_path / "copy.db", quiet)
    with pytest.raises(StoreRefused, match="is there already"):
        backup(store.file.path, tmp_path / "there.db", quiet)
    with pytest.raises(StoreRefused, match="is not a directory: create it"):
        backup(store.file.path, tmp_path / "missing" / "copy.db", quiet)
    assert (tmp_path / "there.db").read_bytes() == b"keep me"
    store.close()


def test_backup_refuses_what_would_not_open_and_leaves_nothing(tmp_path: Path) -> None:
    """The store is named, not the draft of its copy."""
    theirs, ours = tmp_path / "theirs.db", tmp_path / "ours.db"
    with closing(sqlite3.connect(theirs)) as connection:
        connection.execute("CREATE TABLE theirs (id INTEGER)")
    SqliteStore(ours, RuleSet()).close()
    ours.write_bytes(ours.read_bytes()[:6000])
    for source, words in ((theirs, "theirs.db is another program"), (ours, "ours.db")):
        with pytest.raises(StoreRefused, match=words):
            backup(source, tmp_path / "copy.db", quiet)
    assert sorted(tmp_path.iterdir()) == [ours, theirs]


def test_verify_makes_no_store_of_a_typo(tmp_path: Path) -> None:
    """A path that names nothing verifies nothing."""
    with pytest.raises(StoreRefused, match="is not there: name the store to verify"):
        list(verify(f"sqlite:///{tmp_path}/typo.db"))
    assert list(tmp_path.iterdir()) == []


def test_verify_finds_a_total_that_was_tampered_with(tmp_path: Path) -> None:
    """A store whose totals do not follow from its pages is reported, not repaired."""
    store = SqliteStore(tmp_path / "store.db", RuleSet())
    take(store, 0)
    ledger = store.run("default", "run")
    table = ledger.attempts[0].everything.table
    table.series[SERIES] = table.series[SERIES]._replace(valid=9)
    store.close()
    whose = "run 'run' of 'default', attempt 0"
    words = f"over all ranks: {SERIES} is not what its iterations fold to"
    assert list(verify(f"sqlite:///{tmp_path}/store.db")) == [
        f"{whose}: all folds {words}",
        f"{whose}: effective folds {words}",
    ]
