"""The embedded store: one SQLite file, a journal in front of tables, one ledger in memory.

An accepted report is appended to the journal and applied in memory; now and then what changed
is written to the tables and the journal is emptied, in one transaction. A start reads the tables
and replays the journal. If a commit fails, memory is thrown away and read again from the file,
so that nothing is answered that is not on disk.
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
from rankfold_service.store.migrate import damaged
from rankfold_service.store.pack import pack_ledger, pack_page, unpack_ledger, unpack_page
from rankfold_service.store.record import DamagedRecord, Entry, pack, unpack_all
from rankfold_service.store.shelf import PackedShelf, let_go, shelve_old

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger("rankfold.store")

DEFAULT_CHECKPOINT_BYTES = 4 * 1024 * 1024
# For how long old pages are packed after a commit: the next one waits for it.
PACKING_SECONDS = 0.002
# So that of many ranks the newest pages are not written again and again between few reports,
# within a bound: the longer the journal, the more there is in memory and for a start to replay.
WRITTEN_TIMES = 2
MOST_TIMES = 2


class SqliteStore(MemoryStore):
    """A memory store that a file stands behind.

    Args:
        path: of the SQLite file; a new one is made where there is none.
        rules: the rules in force.
        checkpoint_bytes: bring the tables up to date once the journal is longer.
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
        self._checkpoint_bytes = checkpoint_bytes
        self._stale = False
        self._journal_bytes = 0
        self._checkpoint_due = checkpoint_bytes
        self._written = 0
        self._ids: dict[Name, int] = {}
        self._shelves: dict[Name, PackedShelf[bytes]] = {}
        self._changed: set[Name] = set()
        self._warm: set[Name] = set()
        self._shelving: Iterator[None] | None = None
        self._deleted: set[Name] = set()
        self.file = StoreFile(path)
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
        records = b"".join(map(pack, entries))
        self.file.execute("INSERT INTO journal (records) VALUES (?)", records)
        self._journal_bytes += len(records)
        for entry in entries:
            self._mark(entry)

    def _mark(self, entry: Entry) -> None:
        name = (entry.report.project, entry.report.run)
        if entry.op == "delete":
            self._changed.discard(name)
            self._warm.discard(name)
            self._deleted.add(name)
        else:
            self._changed.add(name)

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
        query = "SELECT body FROM page WHERE run_id = ? AND attempt = ? AND iteration = ?"
        try:
            key = (self._ids[name], attempt, iteration)
            row = self.file.connection.execute(query, key).fetchone()
        except sqlite3.Error as error:
            raise unavailable(self.file.path, error) from error
        body: bytes = row[0]
        return body

    # -- tables and journal ----------------------------------------------------------------

    def _load(self) -> None:
        """Read the tables and replay the journal."""
        self.file.rollback()
        self.ledgers.clear()
        self._ids.clear()
        self._shelves.clear()
        self._changed.clear()
        self._warm.clear()
        self._shelving = None
        self._deleted.clear()
        self._journal_bytes = 0
        for id_, project, run, head in self.file.connection.execute(
            "SELECT id, project, name, head FROM run"
        ):
            name = (project, run)
            self._ids[name] = id_
            self.ledgers[name] = unpack_ledger(head, project, run, self.rules, self._shelf(name))
        for (records,) in self.file.connection.execute("SELECT records FROM journal ORDER BY seq"):
            self._journal_bytes += len(records)
            for entry in self._entries(records):
                self._replay(entry)
        self._stale = False

    def _entries(self, records: bytes) -> Iterator[Entry]:
        try:
            yield from unpack_all(records)
        except DamagedRecord as error:
            raise damaged(self.file.path, str(error)) from error

    def _replay(self, entry: Entry) -> None:
        report = entry.report
        if entry.op == "delete":
            super().delete(report.project, report.run)
        elif entry.op == "finish":
            super().finish(report.project, report.run, report.attempt)
        else:
            ledger = self.open_ledger(report.project, report.run)
            ledger.take(report, entry.now, entry.keep)
            self.ledgers[report.project, report.run] = ledger
        self._mark(entry)

    def size(self) -> int:
        """See `Store.size`: the pages that are in use, once the journal is folded in."""
        with self._durably():
            self.checkpoint()
            self.file.truncate_log()
            (pages,) = self.file.connection.execute("PRAGMA page_count").fetchone()
            (free,) = self.file.connection.execute("PRAGMA freelist_count").fetchone()
            (size,) = self.file.connection.execute("PRAGMA page_size").fetchone()
        return int((pages - free) * size)

    def _shelve_some(self) -> None:
        """Pack a few old pages ahead of the checkpoint, so that it does not take long itself."""
        if self._journal_bytes < self._checkpoint_due * 3 // 4:
            return
        if self._shelving is None:
            self._shelving = shelve_old([self.ledgers[name] for name in self._changed])
        until = time.perf_counter() + PACKING_SECONDS
        for _ in self._shelving:
            if time.perf_counter() > until:
                break

    def maintain(self) -> None:
        """See `Store.maintain`: keep the journal and SQLite's own log short."""
        if not self._stale:
            self._shelve_some()
            self._checkpoint_if_due()

    def _checkpoint_if_due(self) -> None:
        try:
            due = self._journal_bytes >= self._checkpoint_due
            if due:
                self.checkpoint()
            if due or self.file.shortening or self.file.log_size() > 2 * self._checkpoint_bytes:
                with self._durably():
                    self.file.shorten_log()
        except StoreUnavailable as error:
            # Everything is still in the journal: nothing is lost, and the next try comes later.
            self._checkpoint_due = self._journal_bytes + self._checkpoint_bytes
            _log.warning("the tables could not be brought up to date: %s", error)

    def checkpoint(self) -> None:
        """Write what changed to the tables and empty the journal, in one commit."""
        with self._durably():
            self.file.transaction(self._save)
            self._settle()

    def _save(self) -> None:
        execute = self.file.connection.execute
        self._written = 0
        for name in self._deleted:
            execute("DELETE FROM run WHERE project = ? AND name = ?", name)
            self._ids.pop(name, None)
        for name in self._changed:
            self._save_ledger(name, self.ledgers[name])
        execute("DELETE FROM journal")
        apart = min(WRITTEN_TIMES * self._written, MOST_TIMES * self._checkpoint_bytes)
        self._checkpoint_due = max(self._checkpoint_bytes, apart)

    def _save_ledger(self, name: Name, ledger: Ledger) -> None:
        head = pack_ledger(ledger)
        (id_,) = self.file.connection.execute(
            "INSERT INTO run (project, name, head) VALUES (?, ?, ?) "
            "ON CONFLICT (project, name) DO UPDATE SET head = excluded.head RETURNING id",
            (*name, head),
        ).fetchone()
        self._ids[name] = id_
        shelf = self._shelves[name]
        pages = [
            (id_, attempt.number, iteration, shelf.packed(attempt, iteration))
            for attempt in ledger.attempts.values()
            for iteration in sorted(attempt.dirty)
        ]
        self.file.connection.executemany(
            "INSERT INTO page VALUES (?, ?, ?, ?) "
            "ON CONFLICT (run_id, attempt, iteration) DO UPDATE SET body = excluded.body",
            pages,
        )
        self._written += len(head) + sum(len(body) for *_, body in pages)

    def _settle(self) -> None:
        """Note that memory and tables agree, and let go of pages that are not needed soon.

        What stays is the newest of runs that have just reported: memory is bounded by what
        comes between two checkpoints, not by how many runs there are.
        """
        for name in self._warm | self._changed:
            self._shelves[name].settle()
        let_go([self.ledgers[name] for name in self._warm - self._changed], 0)
        let_go([self.ledgers[name] for name in self._changed], self.keep_iterations)
        self._shelving = None
        self._warm = self._changed
        self._changed = set()
        self._deleted.clear()
        self._journal_bytes = 0

    def close(self) -> None:
        """See `Store.close`: leaves tables that are up to date and no log."""
        try:
            if not self._stale and (self._changed or self._deleted):
                self.checkpoint()
            if not self._stale:
                # As a script, because it gives a row without columns per page that it frees.
                self.file.connection.executescript("PRAGMA incremental_vacuum")
        finally:
            self.file.close()
