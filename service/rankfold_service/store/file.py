"""A store's file, opened safely: in its place, locked, current and undamaged."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import IO

from rankfold.errors import StoreUnavailable
from rankfold_service.store.disk import check_leftovers, check_place, lock
from rankfold_service.store.migrate import (
    check_version,
    connect,
    create,
    migrations,
    unusable,
    version,
)


def open_file(path: Path) -> tuple[IO[bytes], sqlite3.Connection]:
    """Return the lock and the connection of a current, undamaged store, a new one if need be.

    Raises:
        StoreRefused: the file must not be opened; the message says what to do.
    """
    check_place(path)
    check_leftovers(path)
    steps = migrations()
    if not path.exists():
        create(path, steps)
    handle = lock(path)
    try:
        connection = _connect(path)
        try:
            check_version(version(connection, path), path, steps)
        except BaseException:
            connection.close()
            raise
    except BaseException:
        handle.close()
        raise
    return handle, connection


def _connect(path: Path) -> sqlite3.Connection:
    try:
        return connect(path)
    except sqlite3.DatabaseError as error:
        raise unusable(path, error) from error


def unavailable(path: Path, error: sqlite3.Error) -> StoreUnavailable:
    """Return a failure of SQLite as ours, named by its code."""
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return StoreUnavailable(f"the store at {path} cannot be used now ({name}: {error})")
