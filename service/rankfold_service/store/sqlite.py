"""The embedded store: one SQLite file, a journal in front of tables, one ledger in memory.

An accepted report is appended to the journal and applied in memory. A few runs at a time, those
that have waited longest, are written to the tables, and what nobody needs of the journal is let
go of, in one transaction. A start reads the tables and replays of each run what its row does not
have yet. If a commit fails, memory is thrown away and read again from the file, so that nothing
is answered that is not on disk.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rankfold.errors import RankfoldError, RequestError, StoreUnavailable
from rankfold.facts import Facts
from rankfold.ledger import KEPT_ITERATIONS, Ledger
from rankfold.rules import RuleSet
from rankfold.wire import Receipt, Report
from rankfold_service.store import Arrival, Name
from rankfold_service.store.file import StoreFile, unavailable
from rankfold_service.store.memory import MemoryStore
from rankfold_service.store.migrate import damaged, is_damage
from rankfold_service.store.pack import pack_page, unpack_ledger, unpack_page
from rankfold_service.store.record import DamagedRecord, Entry, name_of, pack, unpack_all
from rankfold_service.store.saving import Saver
from rankfold_service.store.shelf import PackedShelf, undamaged
from rankfold_service.store.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger("rankfold.store")

DEFAULT_CHECKPOINT_BYTES = 2 * 1024 * 1024
# SQLite's log may become so many times as long.
LOG_TIMES = 8


class SqliteStore(MemoryStore):
    """A memory store that a file stands behind.

    Args:
        path: of the SQLite file; a new one is made where there is none.
        rules: the rules in force.
        checkpoint_bytes: how much journal comes between two saves of a run, where they are small;
            see `Backlog`. A start has about as much to replay.
        keep_iterations: of how many of the newest iterations of each attempt the contents stay
            known; see `Ledger.apply`.

    Raises:
        StoreRefused: the file must not be opened; the message says what to do.
    """

    def __init__(
        self,
        path: Path,
        rules: RuleSet,
        *,
        checkpoint_bytes: int = DEFAULT_CHECKPOINT_BYTES,
        keep_iterations: int = KEPT_ITERATIONS,
    ) -> None:
        super().__init__(rules, keep_iterations=keep_iterations)
        self._stale = False
        self._log_limit = LOG_TIMES * checkpoint_bytes
        self._shelves: dict[Name, PackedShelf[bytes]] = {}
        self.file = StoreFile(path)
        self._tables = Tables(self.file)
        self._saver = Saver(
            self.file,
            self._tables,
            self.ledgers,
            self._shelves,
            checkpoint_bytes=checkpoint_bytes,
            keep_iterations=keep_iterations,
        )
        try:
            self._load()
        except BaseException:
            self.file.close()
            raise

    # -- writing ---------------------------------------------------------------------------

    def ingest(self, arrivals: Sequence[Arrival]) -> list[Receipt | RankfoldError]:
        """See `Store.ingest`."""
        with self._durably():
            outcomes = super().ingest(arrivals)
            entries = [
                Entry("report", arrival.now, self.keep_iterations, arrival.report)
                for arrival, outcome in zip(arrivals, outcomes, strict=True)
                if isinstance(outcome, Receipt)
            ]
            self._append(entries)
        return outcomes

    def finish(self, project: str, run: str, attempt: int) -> None:
        """See `Store.finish`."""
        with self._durably():
            super().finish(project, run, attempt)
            self._append([self._entry("finish", Report(run, 0, project, attempt))])

    def delete(self, project: str, run: str) -> None:
        """See `Store.delete`."""
        with self._durably():
            super().delete(project, run)
            self._append([self._entry("delete", Report(run, 0, project))])

    def probe(self) -> None:
        """See `Store.probe`."""
        with self._durably():
            self.file.execute("UPDATE probe SET at = ?", time.time())

    def _entry(self, op: Literal["finish", "delete"], about: Report) -> Entry:
        return Entry(op, time.time(), self.keep_iterations, about)

    def _append(self, entries: Sequence[Entry]) -> None:
        """Make entries durable, in one commit, and remember what they changed."""
        if not entries:
            return
        row, records = self._saver.backlog.row + 1, b"".join(map(pack, entries))
        self._tables.add(row, records)
        self._saver.enter(row, records, entries)

    @contextmanager
    def _durably(self) -> Iterator[None]:
        """Run a write; if it fails, distrust memory until it was read from the file again."""
        self._trust()
        try:
            yield
        except RequestError:
            raise  # found by a check, before anything was changed
        except BaseException as error:
            self._stale = True
            if isinstance(error, sqlite3.Error):
                raise unavailable(self.file.path, error) from error
            raise

    def _trust(self) -> None:
        if self._stale:
            try:
                self._load()
            except sqlite3.Error as error:
                raise unavailable(self.file.path, error) from error

    # -- reading ---------------------------------------------------------------------------

    def names(self) -> list[Name]:
        """See `Store.names`."""
        self._trust()
        return super().names()

    def run(self, project: str, run: str) -> Ledger:
        """See `Store.run`."""
        self._trust()
        return super().run(project, run)

    def open_ledger(self, project: str, run: str) -> Ledger:
        """Return a run's ledger, a new one that finds its pages here where there is none."""
        known = self.ledgers.get((project, run))
        return known or Ledger(project, run, Facts(self.rules), shelf=self._shelf((project, run)))

    def _shelf(self, name: Name) -> PackedShelf[bytes]:
        """Return a new shelf for a run's pages."""
        what = f"run {name[1]!r} in {self.file.path}"
        shelf = PackedShelf(what, partial(self._read_page, name), pack_page, unpack_page)
        self._shelves[name] = shelf
        return shelf

    def _read_page(self, name: Name, attempt: int, iteration: int) -> bytes:
        try:
            return self._tables.page(name, attempt, iteration)
        except sqlite3.Error as error:
            if is_damage(error):
                raise DamagedRecord(str(error)) from error
            raise unavailable(self.file.path, error) from error

    # -- tables and journal ----------------------------------------------------------------

    def _load(self) -> None:
        """Read the tables and replay the journal."""
        self.file.rollback()
        self.ledgers.clear()
        self._shelves.clear()
        applied: dict[Name, int] = {}
        for name, head, row in self._tables.runs():
            applied[name] = row
            shelf = self._shelf(name)
            with undamaged(shelf.what):
                self.ledgers[name] = unpack_ledger(head, *name, self.rules, shelf)
        self._saver.clear(max(applied.values(), default=0))
        for row, records in self._tables.journal():
            entries = [e for e in self._entries(records) if row > applied.get(name_of(e), 0)]
            for entry in entries:
                self._replay(entry)
            self._saver.enter(row, records, entries)
        self._stale = False

    def _entries(self, records: bytes) -> Iterator[Entry]:
        try:
            yield from unpack_all(records)
        except DamagedRecord as error:
            raise damaged(self.file.path, str(error)) from error

    def _replay(self, entry: Entry) -> None:
        """Do again what was done; what a later entry deletes may have lost its beginning."""
        name, report = name_of(entry), entry.report
        if entry.op == "delete":
            self.ledgers.pop(name, None)
        elif entry.op == "report":
            ledger = self.open_ledger(*name)
            ledger.take(report, report.iterations(), entry.now, entry.keep)
            self.ledgers[name] = ledger
        elif name in self.ledgers and report.attempt in self.ledgers[name].attempts:
            self.ledgers[name].finish(report.attempt)

    def size(self, beyond: int = 0) -> int:
        """See `Store.size`: pages in use, once the journal is folded in.

        That holds reports up, so it is left out where what is in the tables is not too much.
        """
        with self._durably():
            size = self.file.used() - self._saver.backlog.size
            if size > beyond:
                self.checkpoint()
                size = self.file.used()
        return size

    def maintain(self) -> None:
        """See `Store.maintain`: keep the journal and SQLite's own log short."""
        if self._stale:
            return
        try:
            with self._durably():
                self._saver.save_some()
                self.file.keep_log_short(self._log_limit)
        except StoreUnavailable as error:
            # Everything is still in the journal: nothing is lost, and the next try comes later.
            self._saver.try_later()
            _log.warning("the tables could not be brought up to date: %s", error)

    def checkpoint(self) -> None:
        """Bring all tables up to date and empty the journal."""
        with self._durably():
            self._saver.save_all()

    def close(self) -> None:
        """See `Store.close`: leaves tables that are up to date and no log."""
        try:
            if self._saver.backlog and not self._stale:
                self.checkpoint()
            if not self._stale:
                # As a script, because it gives a row without columns per page that it frees.
                self.file.connection.executescript("PRAGMA incremental_vacuum")
        finally:
            self.file.close()
