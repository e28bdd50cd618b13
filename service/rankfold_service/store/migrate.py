"""Numbered migrations of the SQLite store, and the check of what a file is before it is used."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from rankfold.errors import StoreRefused
from rankfold_service.store.disk import check_leftovers, check_place, lock, sync_folder
from rankfold_service.store.schema_1 import head_of_schema_1, page_of_schema_1
from rankfold_service.store.scripts import scripts

# In the file's header, so that another program's database is never taken for ours: "RKFD".
APPLICATION_ID = 0x524B4644

# Nobody else writes; a person with a tool of their own may hold the file for a moment.
BUSY_MILLISECONDS = 2000


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step; the number is the schema's version after it."""

    number: int
    name: str
    sql: str


def migrations() -> list[Migration]:
    """Return all steps that this version knows, ascending."""
    return [Migration(*script) for script in scripts("sqlite")]


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection whose every commit is on disk when it returns."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    # Some builds overwrite what is deleted with zeros, which wrote the whole journal twice.
    connection.execute("PRAGMA secure_delete = OFF")
    # Checkpoints of the log are taken at quiet moments, not in the middle of a commit.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Return a connection that changes nothing."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def opened(path: Path) -> sqlite3.Connection:
    """Return what `connect` does.

    Raises:
        StoreRefused: SQLite cannot use the file.
    """
    try:
        return connect(path)
    except sqlite3.DatabaseError as error:
        raise unusable(path, error) from error


def create(path: Path, steps: list[Migration]) -> None:
    """Make a new store at the current schema; it appears whole or not at all.

    Raises:
        StoreRefused: the disk does not take it.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        connection = sqlite3.connect(draft, isolation_level=None)
        # Lets a file shrink after deletes; can only be chosen before anything is written.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for step in steps:
            apply(connection, step)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.close()
        # A link, unlike a rename, never replaces what another process has put there meanwhile.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        sync_folder(path.parent)
    except (OSError, sqlite3.Error) as error:
        raise StoreRefused(f"cannot create a store at {path}: {error}") from error
    finally:
        draft.unlink(missing_ok=True)


def apply(connection: sqlite3.Connection, step: Migration) -> None:
    """Apply one step and its number in one transaction."""
    for function in (page_of_schema_1, head_of_schema_1):
        connection.create_function(function.__name__, 1, function, deterministic=True)
    connection.executescript(
        f"BEGIN IMMEDIATE;\n{step.sql}\nPRAGMA user_version = {step.number};\nCOMMIT;"
    )


def version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema's version of a file that is ours and undamaged.

    Raises:
        StoreRefused: it is not ours, or it is damaged.
    """
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (number,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID:
            raise StoreRefused(f"{path} is another program's database: name another store")
        (health,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        raise unusable(path, error) from error
    if health != "ok":
        raise damaged(path, health)
    return int(number)


def damaged(path: Path, what: str) -> StoreRefused:
    """Return the refusal of a damaged file."""
    return StoreRefused(
        f"{path} is damaged ({what}): nothing was changed; restore it from a backup, "
        "or move it away to begin anew"
    )


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite says that what it read is not what was written."""
    # Our statements fit our schema: where one does not, the schema is not as it was written.
    damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in damage


def unusable(path: Path, error: sqlite3.Error) -> StoreRefused:
    """Return the refusal of a file that SQLite cannot use: damaged, or on a disk that fails."""
    if is_damage(error):
        return damaged(path, str(error))
    return StoreRefused(
        f"{path} cannot be used now ({error}): is its disk full or read-only? Nothing was changed"
    )


def check_version(number: int, path: Path, steps: list[Migration]) -> None:
    """Refuse a schema that is not the current one.

    Raises:
        StoreRefused: it is newer, or it must be migrated first.
    """
    current = steps[-1].number
    if number > current:
        raise StoreRefused(
            f"{path} has schema {number}, newer than {current}, which this version knows: "
            "use the newer version that wrote it"
        )
    if number < current:
        raise StoreRefused(
            f"{path} has schema {number}, older than {current}: back it up, then run "
            f"'rankfold migrate --store sqlite:///{path}'"
        )


def migrate_file(path: Path, steps: list[Migration] | None = None) -> list[str]:
    """Bring a store to the current schema.

    Returns:
        the names of the steps that were applied.

    Raises:
        StoreRefused: it cannot be opened or written, or it is newer than this version.
    """
    steps = migrations() if steps is None else steps
    check_place(path)
    check_leftovers(path)
    if not path.exists():
        raise StoreRefused(f"{path} is not there: 'rankfold serve' makes a new store")
    with lock(path):
        connection = opened(path)
        try:
            number = version(connection, path)
            check_version(max(number, steps[-1].number), path, steps)
            pending = [step for step in steps if step.number > number]
            for step in pending:
                apply(connection, step)
        except sqlite3.DatabaseError as error:
            raise unusable(path, error) from error
        finally:
            connection.close()
    return [step.name for step in pending]
