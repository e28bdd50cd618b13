"""Numbered migrations, and files that must not be opened."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

from contract.answering import everything
from rankfold.audit import audit
from rankfold.errors import ConfigurationError, StoreRefused
from rankfold.rules import RuleSet
from rankfold_service.store import Arrival
from rankfold_service.store.memory import MemoryStore
from rankfold_service.store.migrate import (
    APPLICATION_ID,
    Migration,
    create,
    migrate_file,
    migrations,
    unusable,
)
from rankfold_service.store.opening import migrate, open_store
from rankfold_service.store.sqlite import SqliteStore
from rankfold_service.store.urls import sqlite_path
from support.reports import partial, report
from unit.service.store.older import KEEP, SCHEMA_1, reports

NEXT = Migration(4, "0004_next", "CREATE TABLE later (id INTEGER PRIMARY KEY) STRICT;")


def filled(path: Path) -> None:
    """Make a store with one report."""
    store = SqliteStore(path, RuleSet())
    store.ingest([Arrival(report(partials=[partial()]), 1.0)])
    store.close()


def change(path: Path, statement: str) -> None:
    """Run one statement on a file behind the store's back."""
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_migrations_are_numbered_without_gaps() -> None:
    """Step n brings the schema to version n."""
    steps = migrations()
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))


def test_migrate_of_a_current_store_has_nothing_to_do(tmp_path: Path) -> None:
    """A store that serves already is left as it is; one that is not there is not made up."""
    filled(tmp_path / "store.db")
    assert migrate(f"sqlite:///{tmp_path}/store.db") == []
    with pytest.raises(StoreRefused, match="is not there"):
        migrate(f"sqlite:///{tmp_path}/typo.db")
    assert not (tmp_path / "typo.db").exists()


def test_migrate_brings_an_older_store_forward_and_keeps_its_data(tmp_path: Path) -> None:
    """A store of an older schema is refused by a start, with the way out, and then migrated."""
    path = tmp_path / "store.db"
    filled(path)
    steps = [*migrations(), NEXT]
    assert migrate_file(path, steps) == ["0004_next"]
    assert migrate_file(path, steps) == []
    change(path, "PRAGMA user_version = 0")
    with pytest.raises(StoreRefused, match=r"older than 3.*rankfold migrate"):
        SqliteStore(path, RuleSet())


def test_migrate_turns_a_store_of_schema_1_into_what_it_would_be_now(tmp_path: Path) -> None:
    """Every answer is that of the same reports taken anew: tables, journal and all."""
    path = tmp_path / "store.db"
    shutil.copy(SCHEMA_1, path)
    with pytest.raises(StoreRefused, match="has schema 1"):
        SqliteStore(path, RuleSet())
    assert migrate_file(path) == ["0002_columns", "0003_applied"]
    anew = MemoryStore(RuleSet(), keep_iterations=KEEP)
    for number, arrived in enumerate(chain(*reports()), 1):
        anew.ingest([Arrival(arrived, float(number))])
    store = SqliteStore(path, RuleSet(), keep_iterations=KEEP)
    assert everything(store) == everything(anew)
    repeated = [Arrival(arrived, 99.0) for arrived in chain(*reports())]
    assert store.ingest(repeated) == anew.ingest(repeated)
    assert everything(store) == everything(anew)
    assert [fault for name in store.names() for fault in audit(store.run(*name))] == []
    store.close()


def test_migrate_step_that_fails_changes_nothing(tmp_path: Path) -> None:
    """A broken step leaves the version and the tables as they were."""
    path = tmp_path / "store.db"
    filled(path)
    broken = Migration(4, "0004_broken", "CREATE TABLE half (id INTEGER); SELECT nonsense;")
    with pytest.raises(StoreRefused, match="no such column: nonsense"):
        migrate_file(path, [*migrations(), broken])
    store = SqliteStore(path, RuleSet())
    assert store.names() == [("default", "run")]
    store.close()


def test_store_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """A newer file is left to the version that wrote it."""
    path = tmp_path / "store.db"
    filled(path)
    change(path, "PRAGMA user_version = 99")
    for open_it in (lambda: SqliteStore(path, RuleSet()), lambda: migrate_file(path)):
        with pytest.raises(StoreRefused, match="schema 99, newer than 3"):
            open_it()


def test_store_of_another_program_is_refused(tmp_path: Path) -> None:
    """A SQLite file that is not ours is not touched."""
    path = tmp_path / "store.db"
    change(path, "CREATE TABLE theirs (id INTEGER)")
    before = path.read_bytes()
    with pytest.raises(StoreRefused, match="another program's database"):
        SqliteStore(path, RuleSet())
    assert path.read_bytes()[100:] == before[100:]


@pytest.mark.parametrize("offset", [0.2, 0.5, 0.9])
def test_damaged_store_is_refused_and_left_alone(tmp_path: Path, offset: float) -> None:
    """Overwritten pages are found at the start; nothing starts empty."""
    path = tmp_path / "store.db"
    filled(path)
    data = bytearray(path.read_bytes())
    at = int(len(data) * offset) // 4096 * 4096
    data[at : at + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    with pytest.raises(StoreRefused, match=r"(?s)is damaged.*restore it from a backup"):
        SqliteStore(path, RuleSet())
    assert path.read_bytes() == bytes(data)


def test_truncated_store_is_refused(tmp_path: Path) -> None:
    """Half a file is a damaged file."""
    path = tmp_path / "store.db"
    filled(path)
    path.write_bytes(path.read_bytes()[:6000])
    for open_it in (lambda: SqliteStore(path, RuleSet()), lambda: migrate_file(path)):
        with pytest.raises(StoreRefused, match=r"store\.db is damaged"):
            open_it()


def test_start_that_was_killed_while_creating_is_repeated(tmp_path: Path) -> None:
    """A draft that was never finished does not stand in the way, and a finished one is gone."""
    (tmp_path / ".store.db.1.new").write_bytes(b"half")
    filled(tmp_path / "store.db")
    assert sorted(file.name for file in tmp_path.iterdir()) == [".store.db.1.new", "store.db"]
    connection = sqlite3.connect(tmp_path / "store.db")
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    connection.close()


def test_create_never_replaces_what_is_there(tmp_path: Path) -> None:
    """Of two first starts at the same moment, the second finds the first one's store."""
    path = tmp_path / "store.db"
    filled(path)
    create(path, migrations())
    store = SqliteStore(path, RuleSet())
    assert store.names() == [("default", "run")]
    store.close()


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_store_in_use_is_refused_under_its_other_names(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    """No link goes around the lock, and removing files beside it does not either."""
    store = SqliteStore(tmp_path / "store.db", RuleSet())
    other = tmp_path / "other.db"
    link(other, store.file.path)
    with pytest.raises(StoreRefused, match="in use by another process"):
        SqliteStore(other, RuleSet())
    store.close()


def test_failing_disk_is_not_called_damage(tmp_path: Path) -> None:
    """Only what SQLite calls corrupt is; advice to move a file away must be right."""
    full = sqlite3.OperationalError("disk I/O error")
    assert "is its disk full" in str(unusable(tmp_path, full))


def test_opening_follows_the_url(tmp_path: Path) -> None:
    """memory:// forgets, sqlite:/// keeps, anything else is refused with what is known."""
    assert isinstance(open_store("memory://", RuleSet()), MemoryStore)
    opened = open_store(f"sqlite:///{tmp_path}/a.db", RuleSet())
    assert isinstance(opened, SqliteStore)
    opened.close()
    assert sqlite_path("sqlite:///a.db") == Path("a.db")
    for url in ("sqlite:///", "mysql://x", ""):
        with pytest.raises(ConfigurationError, match="use sqlite:///PATH"):
            open_store(url, RuleSet())
