"""A store's file, opened safely: in its place, locked, current and undamaged."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

from rankfold.errors import StoreUnavailable
from rankfold_service.store.disk import check_leftovers, check_place, is_at, lock, place_of
from rankfold_service.store.migrate import (
    BUSY_MILLISECONDS,
    check_version,
    connect,
    create,
    migrations,
    unusable,
    version,
)


class StoreFile:
    """A current, undamaged store's file, locked; a new one is made where there is none.

    Attributes:
        path: where it is.
        connection: whose every commit is on disk when it returns.

    Raises:
        StoreRefused: the file must not be opened; the message says what to do.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._log = f"{os.path.realpath(path)}-wal"
        self._lock, self.connection = _open(path)
        self._place = place_of(os.fstat(self._lock.fileno()))
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="rankfold-log")
        self._writing_back: Future[None] | None = None

    def transaction(self, write: Callable[[], object]) -> None:
        """Run a write in a transaction of its own; on disk when this returns, or not at all.

        Raises:
            StoreUnavailable: the file is not where it was.
            sqlite3.Error: the write failed.
        """
        self._check_place()
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            write()
            self.connection.execute("COMMIT")
        except BaseException:
            self.rollback()
            raise

    def execute(self, statement: str, *values: object) -> None:
        """Run one statement, which is a transaction of its own; see `transaction`.

        Every call of SQLite gives the interpreter away and has to wait for it again; this is one.
        """
        self._check_place()
        self.connection.execute(statement, values)

    def _check_place(self) -> None:
        if not is_at(self.path, self._place):
            raise StoreUnavailable(
                f"{self.path} was removed or replaced under the aggregator: put it back and restart"
            )

    def rollback(self) -> None:
        """End a transaction that failed, if one is open."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def log_size(self) -> int:
        """Return the bytes of SQLite's log: every commit adds pages, however little it says."""
        try:
            return os.stat(self._log).st_size
        except FileNotFoundError:
            return 0

    @property
    def shortening(self) -> bool:
        """Whether the log is being written back; `shorten_log` then has an end to bring about."""
        return self._writing_back is not None

    def shorten_log(self) -> None:
        """Write SQLite's log back into its file: most of it beside the commits, the rest between.

        Call it until `shortening` is false.
        """
        if self._writing_back is None:
            self._writing_back = self._beside.submit(self._write_back)
        elif self._writing_back.done():
            done, self._writing_back = self._writing_back, None
            done.result()
            self.truncate_log()

    def truncate_log(self) -> None:
        """Write back all of the log and empty it, unless a backup is reading just now."""
        self.connection.execute("PRAGMA busy_timeout = 0")
        try:
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")

    def _write_back(self) -> None:
        """Write back what is in the log by now; commits go on meanwhile."""
        with contextlib.closing(connect(self.path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def close(self) -> None:
        """Let go of the file and its lock."""
        self._beside.shutdown()
        self.connection.close()
        self._lock.close()


def _open(path: Path) -> tuple[IO[bytes], sqlite3.Connection]:
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
