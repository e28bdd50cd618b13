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
from rankfold_service.store.record import Entry, name_of
from rankfold_service.store.shelf import PackedShelf, shelve_old
from rankfold_service.store.snapshot import RunSnapshot
from rankfold_service.store.tables import Tables
from rankfold_service.store.warm import Warm

# Saving takes a part of the time that went by, since long commits leave few turns; so much at
# least, and at most what the next commit may wait for.
SAVING_PART = 1 / 4
LEAST_SECONDS = 0.001
MOST_SECONDS = 0.003
# So many runs are saved together where nobody waits.
CHECKPOINT_RUNS = 64

_OVER = object()


class Saver:
    """Writes the runs that have waited longest to the tables, and lets go of their journal.

    Runs are saved a group at a time, in steps between commits: a snapshot is taken of each, its
    pages are packed one by one, and all are written in one transaction. After one that failed
    everything is read again, from `clear` on.

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
        self._steps: Iterator[None] | None = None
        self._deleted: set[Name] = set()
        self._warm = Warm(keep_iterations)

    def clear(self, row: int) -> None:
        """Forget everything; the next row of the journal comes after `row`."""
        self._steps = None
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
        """Go on to save runs whose turn it is, for a few milliseconds."""
        if self.backlog.size < self._patience:
            return
        began = time.perf_counter()
        # More where saving does not keep up, so that the journal stays bounded.
        times = max(1.0, self.backlog.late)
        if not self._steps and (due := self.backlog.due()):
            self._steps = self._save(min(due, int(self.backlog.group * times)))
        part = max(LEAST_SECONDS, SAVING_PART * (began - self._ended))
        until = began + min(part, MOST_SECONDS) * times
        while self._steps:
            self._step()
            if time.perf_counter() > until:
                break
        self._ended = time.perf_counter()

    def save_all(self) -> None:
        """Bring all tables up to date and empty the journal."""
        while self._steps or self.backlog:
            self._steps = self._steps or self._save(CHECKPOINT_RUNS)
            self._step()

    def try_later(self) -> None:
        """Save nothing before the journal has grown a good deal."""
        self._patience = self.backlog.size + self.backlog.distance

    def _step(self) -> None:
        """Take the next step of the save that was begun."""
        if self._steps and next(self._steps, _OVER) is _OVER:
            self._steps = None

    def _save(self, count: int) -> Iterator[None]:
        """Save those runs that have waited longest, in one commit at the end, step by step."""
        names = [*islice(self.backlog, count)]
        for name in names:
            # First what is complete, so that there is little of which to take a snapshot.
            if ledger := self._ledgers.get(name):
                yield from shelve_old(ledger, keep=self._warm.has_room)
        ready = []
        for name in names:
            ready.append(self._begin(name))
            yield from ready[-1].pack()
        again = [run.size if run.name in self._tables else 0 for run in ready]
        self._file.transaction(partial(self._write, ready))
        for run, size in zip(ready, again, strict=True):
            self._settle(run, size)
        self._patience = 0
        self._warm.cool(self.backlog.end - self.backlog.distance, self.backlog)

    def _begin(self, name: Name) -> RunSnapshot:
        self.backlog.begin(name)
        replaces = name in self._deleted
        self._deleted.discard(name)
        ledger, shelf = self._ledgers.get(name), self._shelves.get(name)
        return RunSnapshot(name, ledger, shelf, self.backlog.row, replaces=replaces)

    def _write(self, ready: Sequence[RunSnapshot]) -> None:
        for snapshot in ready:
            if snapshot.replaces:
                self._tables.remove(snapshot.name)
            if snapshot.run is not None:
                self._tables.save(snapshot.run, snapshot.pages)
        self._confined.trim(self._tables, self.backlog.first_row())

    def _settle(self, saved: RunSnapshot, again: int) -> None:
        """Note that the tables have a snapshot, and let go of pages that are not needed soon."""
        name = saved.name
        self.backlog.settle(name, again)
        if self._ledgers.get(name) is not saved.ledger:
            return  # it was deleted meanwhile, and perhaps begun anew
        if saved.ledger is None:
            self._shelves.pop(name, None)
        else:
            self._shelves[name].settle()
            self._warm.add(name, saved.ledger, self.backlog.end)
