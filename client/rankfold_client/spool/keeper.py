"""Does in the background whatever waits for the spool's disk, and brings back what waits there."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rankfold_client.items import Item
from rankfold_client.outbox import Outbox
from rankfold_client.spool.abandoned import recover
from rankfold_client.spool.names import segments_in
from rankfold_client.spool.records import from_record, to_record
from rankfold_client.spool.segment import Segment, Unreadable
from rankfold_client.spool.writer import Writer

TICK = 1.0
# How soon to come back while records wait on disk only.
SOON = 0.1
LOOK_EVERY = 30.0

log = logging.getLogger("rankfold")


class Keeper:
    """Looks after one spool. `step` is all of the behaviour; the thread only repeats it.

    Args:
        folder: the spool.
        outbox: where its records are brought.
        writer: what this process writes; None where it only delivers, and for everybody.
        clock: seconds that only grow.
        fed: is called when there may be something new to send.

    Attributes:
        folder: as given.
        busy: how many segments belonged to live processes when they were last looked at.
        unreadable: segments that do not say whose they are; they are left as they were.
    """

    def __init__(
        self,
        folder: Path,
        outbox: Outbox,
        writer: Writer | None = None,
        clock: Callable[[], float] = time.monotonic,
        fed: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder, self._outbox, self._writer = folder, outbox, writer
        self._clock, self._fed = clock, fed
        self.busy = 0
        self.unreadable: set[Path] = set()
        self._claimed: list[Segment] = []
        self._found: list[tuple[Path, int]] = []
        self._next_look = self._next_keep = clock()
        self._stopping = self._stopped = self._told_harm = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankfold-spool", daemon=True)
        # Until somebody has looked, nobody can say that nothing is left.
        outbox.unseen = 1

    def start(self) -> None:
        """Begin to look after the spool from a thread that dies with the process."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Write down what is done with and let go of all segments."""
        self._stopping = True
        self._wake.set()
        # Not joined, as the sender is not: the outbox's lock is given back by this wait alone.
        self._outbox.changes.wait_for(lambda: self._stopped or not self._thread.is_alive(), timeout)

    def step(self) -> float:
        """Do everything that is due; return in how many seconds to come back."""
        if self._writer is not None:
            self._writer.busy_since = self._clock()
        fault: OSError | None = None
        for part in (self._keep, self._look, self._feed_all):
            try:
                part()
            except OSError as error:
                log.debug("the spool %s: %s", self.folder, error)
                fault = error
        if self._writer is not None:
            self._writer.judge(fault)
        self._outbox.changes.notify()
        self._fed()
        return SOON if self._found or any(s.unread for s in self._segments()) else TICK

    def close(self) -> None:
        """Write down what is done with and let go of all segments."""
        if self._writer is not None:
            self._outbox.keep_rest()
        # Otherwise the process lets go of them when it ends: an append must not meet another's file
        # under the number that its own had.
        may_let_go = self._writer is None or self._writer.shut()
        self._stopping, self._next_keep = True, self._clock()
        try:
            self._keep()
        except OSError as error:
            log.warning("the spool %s could not be brought up to date: %s", self.folder, error)
        for segment in self._segments() if may_let_go else ():
            segment.close()

    def leave(self, timeout: float) -> str:
        """Stop; return how many items a later process would find, and how they are delivered.

        A disk that does not answer may take half a second more than the time given.
        """
        self.stop(max(0.5, timeout))
        kept = sum(s.unread + s.pending for s in self._segments()) + self._outbox.unseen
        return (
            f"; {kept} items are kept in {self.folder} for the next process of this rank, or for "
            f"'rankfold spool flush {self.folder}'"
        )

    def _segments(self) -> list[Segment]:
        return [*self._claimed, *(self._writer.segments if self._writer is not None else ())]

    def _look(self) -> None:
        """Find what others left, now and then: a lock may have been held a little longer."""
        if self._found or self._clock() < self._next_look:
            return
        self._next_look = self._clock() + LOOK_EVERY
        self.busy = 0
        try:
            ours = self.unreadable | {segment.path for segment in self._segments()}
            key = self._writer.key if self._writer is not None else ""
            found = []
            if self.folder.exists():
                recover(self.folder, key)
                found = segments_in(self.folder, key)
            others = [path for path in found if path not in ours]
            self._found = [(path, _size(path)) for path in others]
        finally:
            self._outbox.unseen = len(self._found)

    def _feed_all(self) -> None:
        """Bring into memory what there is room for, the oldest first."""
        for segment in self._segments():
            self._feed(segment)
        while self._found and self._outbox.room():
            claimed = self._claim(self._found[0][0])
            if claimed is not None:
                self._claimed.append(claimed)
                self._outbox.adopt(claimed)
            del self._found[0]
            self._outbox.unseen = len(self._found)
            if claimed is not None:
                self._feed(claimed)

    def _claim(self, path: Path) -> Segment | None:
        try:
            segment = Segment.claim(path)
        except (OSError, Unreadable) as error:
            log.warning("a segment of the spool is left as it is: %s", error)
            self.unreadable.add(path)
            return None
        self.busy += segment is None
        return segment

    def _feed(self, segment: Segment) -> None:
        room = self._outbox.room()
        if not segment.unread or not room:
            return
        if not segment.loaded:
            self._load(segment)
        records: list[tuple[Item, int]] = []
        unknown = 0
        for _ in range(min(room, len(segment.loaded))):
            record, end = segment.loaded.popleft()
            try:
                records.append((from_record(record), end))
            except ValueError as error:
                log.warning("%s: a record is dropped: %s", segment.path, error)
                unknown += 1
        self._outbox.feed(segment, records, unknown)

    def _load(self, segment: Segment) -> None:
        """Read back what this process wrote and had no room for in memory."""
        end, expected = self._outbox.on_disk_only(segment)
        found = segment.load(segment.read, end).records
        segment.loaded.extend(found)
        segment.read = end
        if len(found) < expected:
            lost = expected - len(found)
            log.warning("%s: %d records are damaged and dropped", segment.path, lost)
            self._outbox.feed(segment, [], lost)

    def _keep(self) -> None:
        """Write down what is done with, for good; delete segments that are wholly done with."""
        if self._clock() < self._next_keep:
            return
        self._mend()
        for segment in self._segments():
            if self._is_done(segment):
                segment.delete()
                self._forget(segment)
            else:
                segment.mark()
                segment.sync()
        if self._writer is not None and not self._stopping:
            self._writer.rotate()
            self._writer.elsewhere = self._weight(self._writer)
        # Only now: what failed is tried again before anything else calls the disk well.
        self._next_keep = self._clock() + TICK

    def _mend(self) -> None:
        """Notice that files in use were removed or cut, which goes on working and keeps nothing."""
        ours = [s for s in self._segments() if not self._is_done(s)]
        lost, cut = [s for s in ours if s.is_lost()], [s for s in ours if s.is_cut()]
        if (lost or cut) and not self._told_harm:
            log.warning(
                "the spool %s: files in use (%d) were %s; what they hold is "
                "written there anew, and until then a killed process loses what is not delivered",
                *(self.folder, len(lost or cut), "removed or moved away" if lost else "cut off"),
            )
        self._told_harm = bool(lost or cut)
        for segment in lost:
            segment.renew(self._outbox.turn.between())
        for segment in cut:
            waiting = [(to_record(item), end) for item, end in self._outbox.in_memory(segment)]
            segment.restore([*waiting, *segment.loaded])
        self._told_harm = False

    def _is_done(self, segment: Segment) -> bool:
        """Say whether neither a record nor a count of what was given up is left in it."""
        if segment.unread or segment.pending:
            return False
        if self._writer is not None and segment.origin is self._writer.origin:
            # What is appended to stays, and with it the count that all of them hold.
            newest = segment is self._writer.segments[-1]
            shut = self._writer.current is None
            return not newest or (self._stopping and shut and not segment.origin.untold)
        return not segment.origin.untold

    def _forget(self, segment: Segment) -> None:
        self._outbox.retire(segment)
        for those in (self._claimed, self._writer.segments if self._writer is not None else []):
            if segment in those:
                those.remove(segment)

    def _weight(self, writer: Writer) -> int:
        """Return the bytes in all segments of the rank but the newest."""
        others = sum(segment.end for segment in self._segments() if segment is not writer.current)
        return others + sum(size for _, size in self._found)

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(self._step_safely())
            self._wake.clear()
        try:
            self.close()
        finally:
            self._stopped = True
            self._outbox.changes.notify()

    def _step_safely(self) -> float:
        try:
            return self.step()
        except Exception:  # the thread must outlive what nobody thought of
            log.exception("the spool %s could not be looked after", self.folder)
            return TICK


def _size(path: Path) -> int:
    """Return a file's bytes; 0 where another process was done with it meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
