"""A store's file, opened safely: in its place, locked, current and undamaged."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

from rankfold.errors import StoreRefused, StoreUnavailable
from rankfold_service.store.disk import Guarded, check_leftovers, check_place, lock
from rankfold_service.store.migrate import (
    BUSY_MILLISECONDS,
    check_version,
    connect,
    connect_to_read,
    create,
    migrations,
    opened,
    version,
)

# Each writes back what came during the one before; after the third there is next to nothing left.
PASSES = 3


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
        self._lock, self.connection = _open(path)
        self._file = Guarded(self.path, os.fstat(self._lock.fileno()))
        self._log = Guarded(f"{os.path.realpath(path)}-wal")
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="rankfold-log")
        self._writing_back: Future[None] | None = None
        self._room = 0

    def transaction(self, write: Callable[[], object]) -> None:
        """Run a write in a transaction of its own; on disk when this returns, or not at all.

        Raises:
            StoreUnavailable: the file or its log is not where it was, or was cut off.
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
        if not self.in_place:
            raise StoreUnavailable(
                f"{self.path} was removed or replaced under the aggregator: put it back and restart"
            )
        if not self.log_in_place:
            # SQLite goes on in the file that it has open, which ends with this process.
            raise StoreUnavailable(
                f"{self._log.path} was removed or replaced under the aggregator: stop the "
                f"aggregator with SIGTERM, which saves what was in it to {self.path}; a kill would "
                "lose that"
            )
        self._check_whole("stop the aggregator, restore {path} from a backup, and restart")

    def check_kept(self) -> None:
        """Look, at the end, whether a restart would find all that was acknowledged.

        Raises:
            StoreUnavailable: the file is not where it was, or it or its log was cut off.
        """
        if not self.in_place:
            raise StoreUnavailable(
                f"{self.path} was removed or replaced under the aggregator: what it had is "
                "lost, unless it was moved and can be put back"
            )
        if not self.log_in_place:
            self._save_log()
        self._check_whole("what was acknowledged may be lost; restore {path} from a backup")

    def _save_log(self) -> None:
        """Write SQLite's open log, which is in no folder any more, into the file.

        SQLite does so too when it closes, and then says nothing of a failure.
        """
        try:
            busy, *frames = self.connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        except sqlite3.Error as error:
            why = str(error)
        else:
            if not busy and len({*frames}) == 1:
                return
            why = "another program reads it"
        raise StoreUnavailable(
            f"{self._log.path} was removed or replaced under the aggregator, and what was in it "
            f"could not be saved to {self.path} ({why}): restore that from a backup"
        )

    def _check_whole(self, advice: str) -> None:
        """Look whether anything is missing of what became shorter.

        After another program's VACUUM nothing is.
        """
        if not (self._file.is_shorter or self._log.is_shorter):
            return
        try:
            if not self._file.size:  # SQLite would take the log away, as left over
                raise StoreRefused(f"{self.path} is empty")
            # A connection of its own, which has nothing in memory.
            with contextlib.closing(connect_to_read(self.path)) as connection:
                version(connection, self.path)
        except (StoreRefused, sqlite3.Error) as error:
            cut = self._file if self._file.is_shorter else self._log
            raise StoreUnavailable(
                f"{cut.path} was cut off under the aggregator: {advice.format(path=self.path)}"
            ) from error
        self._file.is_shorter = self._log.is_shorter = False

    @property
    def in_place(self) -> bool:
        """Whether the file is where a restart would look for it."""
        return self._file.is_there()

    @property
    def log_in_place(self) -> bool:
        """Whether SQLite's log is where a restart would look for it."""
        return self._log.is_there()

    def rollback(self) -> None:
        """End a transaction that failed, if one is open."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def used(self) -> int:
        """Return the bytes of the file's pages that are in use."""
        (pages,) = self.connection.execute("PRAGMA page_count").fetchone()
        (free,) = self.connection.execute("PRAGMA freelist_count").fetchone()
        (size,) = self.connection.execute("PRAGMA page_size").fetchone()
        return int((pages - free) * size)

    def log_size(self) -> int:
        """Return the bytes of SQLite's log: every commit adds pages, however little it says."""
        try:
            return os.stat(self._log.path).st_size
        except FileNotFoundError:
            return 0

    def keep_log_short(self, limit: int) -> None:
        """Write SQLite's log back into its file once it is longer than a limit, in bytes.

        Most of that happens beside the commits, and the rest, which is next to nothing, between
        two of them. After that the log begins again in the room that it has. To cut that off would
        take milliseconds each time, so it is done only where a backup let the log grow meanwhile.

        Raises:
            StoreUnavailable: the file or its log is not where it was, or was cut off.
        """
        self._check_place()
        if self._writing_back is None:
            if self.log_size() > max(limit, self._room):
                self._writing_back = self._beside.submit(self._write_back)
        elif self._writing_back.done():
            done, self._writing_back = self._writing_back, None
            done.result()
            self._finish_log("RESTART" if self.log_size() <= 2 * limit else "TRUNCATE")

    def _finish_log(self, how: str) -> None:
        """Write back the rest of the log and begin it again, unless a backup is reading it."""
        self.connection.execute("PRAGMA busy_timeout = 0")
        try:
            self.connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        self._room = self._log.size = self.log_size()

    def _write_back(self) -> None:
        """Write back what is in the log by now; commits go on meanwhile."""
        with contextlib.closing(connect(self.path)) as connection:
            for _ in range(PASSES):
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
        connection = opened(path)
        try:
            check_version(version(connection, path), path, steps)
        except BaseException:
            connection.close()
            raise
    except BaseException:
        handle.close()
        raise
    return handle, connection


def unavailable(path: Path, error: sqlite3.Error) -> StoreUnavailable:
    """Return a failure of SQLite as ours, named by its code."""
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return StoreUnavailable(f"the store at {path} cannot be used now ({name}: {error})")
