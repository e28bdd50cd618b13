"""The embedded store: one SQLite file, a journal in front of tables, one ledger in memory.

An accepted report is appended to the journal and applied in memory. A few runs at a time, those
that have waited longest, are written to the tables, and what nobody needs of the journal is let
go of, in one transaction. A start reads the tables and replays of each run what its row does not
have yet; a run that it cannot read is confined and costs no other. If a commit fails, memory is
thrown away and read again from the file, so that nothing is answered that is not on disk.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Hashable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rankfold.errors import RankfoldError, RequestError, StoreDamaged, StoreUnavailable
from rankfold.facts import Facts
from rankfold.ledger import KEPT_ITERATIONS, Ledger
from rankfold.rules import RuleSet
from rankfold.wire import Receipt, Report
from rankfold_service.store import Arrival, Name
from rankfold_service.store.confined import Confined
from rankfold_service.store.file import StoreFile, unavailable
from rankfold_service.store.memory import MemoryStore
from rankfold_service.store.migrate import damaged, is_damage, unusable
from rankfold_service.store.pack import unpack_ledger
from rankfold_service.store.pages import pack_page, unpack_page
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
        self._confined = Confined()
        self._saver = Saver(
            self.file,
            self._tables,
            self._confined,
            self.ledgers,
            self._shelves,
            checkpoint_bytes=checkpoint_bytes,
            keep_iterations=keep_iterations,
        )
        try:
            self._load()
        except BaseException as error:
            self.file.close()
            if isinstance(error, sqlite3.Error):
                raise unusable(self.file.path, error) from error
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
        self.run(project, run)  # what is damaged is found before anything is changed
        with self._durably():
            super().finish(project, run, attempt)
            self._append([self._entry("finish", Report(run, 0, project, attempt))])

    def delete(self, project: str, run: str) -> None:
        """See `Store.delete`."""
        with self._durably():
            if (project, run) not in self._confined:
                super().delete(project, run)
            self._append([self._entry("delete", Report(run, 0, project))])
            self._confined.drop((project, run))

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
        self._saver.enter(row, len(records), entries)

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
        return sorted([*self.ledgers, *self._confined])

    def versions(self) -> dict[Name, Hashable]:
        """See `Store.versions`; a run that is confined has none."""
        known = self.ledgers
        return {name: known[name].version if name in known else None for name in self.names()}

    def run(self, project: str, run: str) -> Ledger:
        """See `Store.run`."""
        self._trust()
        self._confined.check((project, run))
        return super().run(project, run)

    def open_ledger(self, project: str, run: str) -> Ledger:
        """Return a run's ledger, a new one that finds its pages here where there is none.

        Raises:
            StoreDamaged: there is one that cannot be read.
        """
        known = self.ledgers.get((project, run))
        if known is None:
            self._confined.check((project, run))
            known = Ledger(project, run, Facts(self.rules), shelf=self._shelf((project, run)))
        return known

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
        """Read the tables and replay the journal; runs that are damaged are confined."""
        self.file.rollback()
        self.ledgers.clear()
        self._shelves.clear()
        self._confined.clear()
        applied: dict[Name, int] = {}
        for name, head, row in self._tables.runs():
            applied[name] = row
            shelf = self._shelf(name)
            try:
                with undamaged(shelf.what):
                    self.ledgers[name] = unpack_ledger(head, *name, self.rules, shelf)
            except StoreDamaged as error:
                self._confine(name, error)
        self._saver.clear(max(applied.values(), default=0))
        for row, size, by_run in self._journal(applied):
            for name, entries in by_run.items():
                self._replay(row, name, entries, applied)
            known = [entries for name, entries in by_run.items() if name not in self._confined]
            self._saver.enter(row, size, [*chain.from_iterable(known)])
        self._stale = False

    def _journal(
        self, applied: Mapping[Name, int]
    ) -> Iterator[tuple[int, int, dict[Name, list[Entry]]]]:
        """Yield of each row of the journal its size and, by run, what the tables lack."""
        for row, records in self._tables.journal():
            by_run: dict[Name, list[Entry]] = {}
            for entry in self._entries(records):
                if row > applied.get(name_of(entry), 0):
                    by_run.setdefault(name_of(entry), []).append(entry)
            yield row, len(records), by_run

    def _entries(self, records: bytes) -> Iterator[Entry]:
        try:
            yield from unpack_all(records)
        except DamagedRecord as error:
            raise damaged(self.file.path, str(error)) from error

    def _replay(
        self, row: int, name: Name, entries: Sequence[Entry], applied: Mapping[Name, int]
    ) -> None:
        """Do again what was done to a run, or keep it where the run is damaged.

        Args:
            row: of the journal.
            name: of the run.
            entries: about it in that row.
            applied: up to which row the tables have everything, by run.
        """
        if entries[0].op == "delete":  # which has a row for itself
            self.ledgers.pop(name, None)
            self._confined.drop(name)
        elif name in self._confined:
            self._confined.keep(row, name, entries)
        else:
            try:
                self._redo(name, entries)
            except StoreDamaged as error:
                self._confine(name, error)
                # The rows up to this one were not kept, for they did no harm.
                for earlier, _, by_run in self._journal(applied):
                    if earlier > row:
                        break
                    self._confined.keep(earlier, name, by_run.get(name, ()))

    def _redo(self, name: Name, entries: Sequence[Entry]) -> None:
        """Do again what was done; what a later entry deletes may have lost its beginning."""
        for entry in entries:
            report = entry.report
            if entry.op == "report":
                ledger = self.open_ledger(*name)
                ledger.take(report, report.iterations(), entry.now, entry.keep)
                self.ledgers[name] = ledger
            elif name in self.ledgers and report.attempt in self.ledgers[name].attempts:
                self.ledgers[name].finish(report.attempt)

    def _confine(self, name: Name, error: StoreDamaged) -> None:
        self.ledgers.pop(name, None)
        self._shelves.pop(name, None)
        self._confined.add(name, error)

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
            self.file.check_kept()
            # Where the log is gone all is in the file by now, and no transaction begins any more.
            if not self._stale and self.file.log_in_place:
                if self._saver.backlog:
                    self.checkpoint()
                # As a script, because it gives a row without columns per page that it frees.
                self.file.connection.executescript("PRAGMA incremental_vacuum")
        finally:
            self.file.close()
