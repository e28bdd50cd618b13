"""Brings a store's tables up to date, a few runs at a time: no report waits for all of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from rankfold.ledger import Ledger
from rankfold_service.store import Name
from rankfold_service.store.backlog import Backlog
from rankfold_service.store.confined import Confined
from rankfold_service.store.file import StoreFile
from rankfold_service.store.pack import pack_ledger
from rankfold_service.store.record import Entry, name_of
from rankfold_service.store.shelf import PackedShelf, shelve_old
from rankfold_service.store.tables import PageRow, RunRow, Tables
from rankfold_service.store.warm import Warm

# For how long runs are made ready for the tables after a commit: the next one waits for it.
SAVING_SECONDS = 0.003
# The same where nobody waits.
CHECKPOINT_SECONDS = 0.1
# How much of that old pages are packed for, before the runs are saved: a part of the time that
# went by, since long commits leave few turns, and so much at least.
PACKING_PART = 1 / 4
PACKING_SECONDS = 0.001

# A run to be saved, unless it was deleted, how many bytes are written again, and changed pages.
Ready = tuple[Name, int, RunRow | None, list[PageRow]]


class Saver:
    """Writes the runs that have waited longest to the tables, and lets go of their journal.

    A save is one transaction. After one that failed everything is read again, from `clear` on.

    Args:
        file: of the store.
        tables: in it.
        confined: which runs are damaged; the journal keeps what it has of them.
        ledgers: every run as it is now.
        shelves: where the pages of each are.
        checkpoint_bytes: how much journal comes between two saves of a run; see `Backlog`.
        keep_iterations: of how many of its newest iterations a run keeps the pages at most.

    Attributes:
        backlog: which runs the tables are behind with.
    """

    def __init__(
        self,
        file: StoreFile,
        tables: Tables,
        confined: Confined,
        ledgers: Mapping[Name, Ledger],
        shelves: dict[Name, PackedShelf[bytes]],
        *,
        checkpoint_bytes: int,
        keep_iterations: int,
    ) -> None:
        self._file = file
        self._tables = tables
        self._confined = confined
        self._ledgers = ledgers
        self._shelves = shelves
        self.backlog = Backlog(checkpoint_bytes)
        self._patience = 0
        self._ended = 0.0
        self._deleted: set[Name] = set()
        self._warm = Warm(keep_iterations)

    def clear(self, row: int) -> None:
        """Forget everything; the next row of the journal comes after `row`."""
        self.backlog.clear(row)
        self._deleted.clear()
        self._warm.clear()

    def enter(self, row: int, size: int, entries: Sequence[Entry]) -> None:
        """Remember what the tables lack of a row of the journal, and its bytes."""
        self.backlog.enter(row, size, map(name_of, entries))
        for entry in entries:
            if entry.op == "delete":
                self._deleted.add(name_of(entry))
                self._warm.drop(name_of(entry))

    def save_some(self) -> None:
        """Save runs whose turn it is, for a few milliseconds."""
        backlog = self.backlog
        if backlog.size < self._patience:
            return
        if due := backlog.due():
            began = time.perf_counter()
            # More where saving does not keep up, so that the journal stays bounded.
            times = max(1.0, backlog.size / backlog.distance)
            packing = max(PACKING_SECONDS, PACKING_PART * (began - self._ended))
            until = began + min(packing, SAVING_SECONDS) * times
            packed = self._pack_old(min(due, int(backlog.group * times)), until)
            if packed >= min(due, backlog.group):
                self._save(packed, began + SAVING_SECONDS * times)
                self._patience = 0
                self._warm.cool(backlog.end - backlog.distance, backlog)
        self._ended = time.perf_counter()

    def save_all(self) -> None:
        """Bring all tables up to date and empty the journal."""
        while self.backlog:
            self._save(len(self.backlog), time.perf_counter() + CHECKPOINT_SECONDS)

    def try_later(self) -> None:
        """Save nothing before the journal has grown a good deal."""
        self._patience = self.backlog.size + self.backlog.distance

    def _pack_old(self, count: int, until: float) -> int:
        """Pack old pages of runs that have waited longest, so that their save has few to pack.

        Returns:
            how many of so many runs have none left.
        """
        for number, name in enumerate(islice(self.backlog, count)):
            if ledger := self._ledgers.get(name):
                for _ in shelve_old(ledger, keep=self._warm.has_room):
                    if time.perf_counter() > until:
                        return number
        return count

    def _save(self, count: int, until: float) -> None:
        """Save so many runs, or those for which there is time, in one commit."""
        ready = list(self._ready(count, until))
        if ready:
            self._file.transaction(partial(self._write, ready))
        for name, again, *_ in ready:
            self._settle(name, again)

    def _ready(self, count: int, until: float) -> Iterator[Ready]:
        """Yield runs that have waited longest, each with what the tables lack of it."""
        for name in islice(self.backlog, count):
            ledger = self._ledgers.get(name)
            if ledger is None:
                yield name, 0, None, []
                continue
            unsaved = self._shelves[name].unsaved(ledger)
            pages = [(*place, packed) for place, packed in unsaved]
            run = RunRow(name, pack_ledger(ledger), self.backlog.row)
            size = len(run.head) + sum(len(body) for *_, body in pages)
            yield name, size if name in self._tables else 0, run, pages
            if time.perf_counter() > until:
                return

    def _write(self, ready: Sequence[Ready]) -> None:
        for name, _, run, pages in ready:
            if name in self._deleted:
                self._tables.remove(name)
            if run is not None:
                self._tables.save(run, pages)
        self._confined.trim(self._tables, self.backlog.first_row(len(ready)))

    def _settle(self, name: Name, again: int) -> None:
        """Note that the tables have all of a run, and let go of pages that are not needed soon."""
        self.backlog.settle(name, again)
        self._deleted.discard(name)
        ledger = self._ledgers.get(name)
        if ledger is None:
            self._shelves.pop(name, None)
        else:
            self._shelves[name].settle()
            for attempt in ledger.attempts.values():
                attempt.dirty.clear()
            self._warm.add(name, ledger, self.backlog.end)
