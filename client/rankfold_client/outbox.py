"""The bounded queue between training, which only ever puts, and the one thread that sends."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from rankfold_client.items import FINISH, Item, named, pack, size_of, unpack
from rankfold_client.origin import Origin
from rankfold_client.spool.segment import Segment
from rankfold_client.spool.writer import Writer

_FINISH = pack(FINISH)


@dataclass(eq=False, slots=True)
class Stretch:
    """Items one after another that are one process's and in one segment, or in none."""

    origin: Origin
    segment: Segment | None
    length: int = 0


class Outbox:
    """Items in order until they are delivered or given up; putting never waits for the network.

    What is being sent stays inside until `settle`, so that a retry takes the same items and
    the bounds hold for everything that the client keeps. With a spool every item is on disk
    too, and what finds no room in memory waits there alone until it is fed back.

    Args:
        max_items: how many items may wait in memory.
        max_bytes: roughly how much memory they may take.
        clock: seconds that only grow.
        own: whose items are put.
        writer: where they are kept on disk; None keeps them in memory only.

    Attributes:
        own: as given.
        delivered: how many items the aggregator has taken.
        overflow: how many found no room.
        why_full: what had no room the last time.
        unseen: how many segments of others were not looked into yet; at least an item each.
        putting: held while the disk is written, so that it keeps the order; the sender never
            takes it.
    """

    def __init__(
        self,
        max_items: int,
        max_bytes: int,
        clock: Callable[[], float],
        own: Origin | None = None,
        writer: Writer | None = None,
    ) -> None:
        self._max_items, self._max_bytes, self._clock = max_items, max_bytes, clock
        self.own, self._writer = own or Origin({}), writer
        self.delivered = self.overflow = self.unseen = 0
        self.why_full = ""
        # Of each item in memory: itself, since when, and up to where its segment holds it. Not one
        # tuple for all three, for the reason that items are packed.
        self._items: deque[bytes] = deque()
        self._since: deque[float] = deque()
        self._ends: deque[int] = deque()
        self._stretches: deque[Stretch] = deque()
        self._others: list[Origin] = []
        self._bytes = self._refused = self._unread = self._spilled = 0
        self._changed = threading.Condition()
        self.putting = threading.RLock() if writer is None else writer.putting

    def __len__(self) -> int:
        return len(self._items) + self._unread + self.unseen

    @property
    def ready(self) -> int:
        """How many of the items are in memory, where they can be sent from."""
        return len(self._items)

    @property
    def dropped(self) -> int:
        """How many items were given up so far; never falls."""
        return self.overflow + self._refused

    @property
    def unkept(self) -> tuple[int, str]:
        """How many items could not be kept on disk and waited in memory only, and why."""
        return (self._writer.unkept, self._writer.trouble) if self._writer else (0, "")

    @property
    def in_memory_only(self) -> int:
        """How many of the items that wait would not outlive the process."""
        with self._changed:
            return sum(s.length for s in self._stretches if s.segment is None)

    def put(self, item: Item) -> int:
        """Append an item and return how many are ready now; 0 where it is dropped."""
        try:
            packed = pack(item)
        except ValueError as error:
            self.give_up(f"{named(item)}: {error}")
            return 0
        with self.putting:
            if self._writer is not None and self._writer.full:
                return self._drop("the spool is full")
            with self._changed:
                fits = len(self._items) < self._max_items
                fits = fits and self._bytes + size_of(packed) <= self._max_bytes
                in_turn = fits and not self._spilled
            segment = self._writer.append(item) if self._writer is not None else None
            if segment is None and not fits:
                return self._drop("the queue is full")
            with self._changed:
                if segment is None:
                    self._enter(packed, self.own, None, 0)
                elif in_turn:
                    segment.read = segment.end
                    self._enter(packed, self.own, segment, segment.end)
                else:
                    segment.unread += 1
                    self._unread += 1
                    self._spilled += 1
                return max(1, len(self._items))

    def give_up(self, why: str) -> None:
        """Count an item that never came to be put."""
        with self.putting:
            self._drop(why)

    def age(self) -> float:
        """Return for how many seconds the oldest item has waited; 0 where there is none."""
        with self._changed:
            return self._clock() - self._since[0] if self._items else 0.0

    def peek(self, most: int) -> tuple[Origin, list[bytes]]:
        """Return up to `most` of the oldest items of one origin, packed; a finish comes alone.

        Where none is ready, the origin is one with something to tell.
        """
        with self._changed:
            if not self._items:
                return self._untold() or self.own, []
            origin, number = self._stretches[0].origin, 0
            for stretch in self._stretches:
                if stretch.origin is not origin or number >= most:
                    break
                number += stretch.length
            items = list(islice(self._items, min(number, most)))
        if _FINISH in items:
            items = items[: items.index(_FINISH)] or [_FINISH]
        return origin, items

    def untold(self) -> bool:
        """Whether the aggregator has still to be told that something was given up."""
        with self._changed:
            return self._untold() is not None

    def settle(self, number: int, *, delivered: bool) -> None:
        """Take out the oldest items: they were delivered, or are given up and counted so."""
        with self._changed:
            for _ in range(number):
                self._leave(delivered=delivered)
            if delivered:
                self.delivered += number
            else:
                self._refused += number
            self._changed.notify_all()

    def room(self) -> int:
        """Return how many items may be fed: half of the queue is left to those that are put."""
        with self._changed:
            if self._bytes >= self._max_bytes // 2 and self._items:
                return 0
            return max(0, max(1, self._max_items // 2) - len(self._items))

    def adopt(self, segment: Segment) -> None:
        """Take over what another process left in a segment."""
        with self._changed:
            self._others.append(segment.origin)
            self._unread += segment.unread

    def retire(self, segment: Segment) -> None:
        """Forget a segment that is done with."""
        with self._changed:
            if segment.origin in self._others:
                self._others.remove(segment.origin)
            self._changed.notify_all()

    def on_disk_only(self, segment: Segment) -> tuple[int, int]:
        """Return where a segment of our own ends, and how many of its records are on disk only."""
        with self.putting:
            return segment.end, segment.unread

    def in_memory(self, segment: Segment) -> list[tuple[Item, int]]:
        """Return the items in memory that a segment holds too, each with where it ends there."""
        with self._changed:
            held, start = list[tuple[bytes, int]](), 0
            for stretch in self._stretches:
                if stretch.segment is segment:
                    both = zip(self._items, self._ends, strict=True)
                    held += islice(both, start, start + stretch.length)
                start += stretch.length
        return [(unpack(item), end) for item, end in held]

    def feed(self, segment: Segment, records: Sequence[tuple[Item, int]], lost: int) -> None:
        """Bring items into memory that waited in a segment alone.

        Args:
            segment: where they waited.
            records: the items, each with the offset at which it ends.
            lost: how many more were there and cannot be read.
        """
        with self._changed:
            for item, end in records:
                self._enter(pack(item), segment.origin, segment, end)
            number = len(records) + lost
            segment.unread -= number
            self._unread -= number
            if segment.origin is self.own:
                self._spilled -= number
            segment.origin.dropped += lost
            self._refused += lost

    def notify(self) -> None:
        """Wake those who wait."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds that is looked at on each change; return whether it does."""
        try:
            with self._changed:
                return self._changed.wait_for(condition, timeout)
        except RuntimeError as error:
            # A signal's exception between the release of the lock and the wait: leaving the
            # block releases it again, which hides what the handler raised.
            if error.__context__ is None:
                raise
            raise error.__context__ from None

    def _enter(self, packed: bytes, origin: Origin, segment: Segment | None, end: int) -> None:
        size = size_of(packed)
        self._bytes += size
        self._since.append(self._clock())
        self._ends.append(end)
        last = self._stretches[-1] if self._stretches else None
        if last is None or last.segment is not segment or last.origin is not origin:
            last = Stretch(origin, segment)
            self._stretches.append(last)
        last.length += 1
        if segment is not None:
            segment.pending += 1
        # At last, for a signal's handler may have it sent from here: all else of it is there.
        self._items.append(packed)

    def _leave(self, *, delivered: bool) -> None:
        self._bytes -= size_of(self._items.popleft())
        self._since.popleft()
        end = self._ends.popleft()
        stretch = self._stretches[0]
        if stretch.segment is not None:
            stretch.segment.pending -= 1
            stretch.segment.done = end
        if not delivered:
            stretch.origin.dropped += 1
        stretch.length -= 1
        if not stretch.length:
            self._stretches.popleft()

    def _drop(self, why: str) -> int:
        with self._changed:
            self.overflow += 1
            self.own.dropped += 1
            self.why_full = why
        if self._writer is not None:
            self._writer.note_dropped()
        return 0

    def _untold(self) -> Origin | None:
        return next((origin for origin in (self.own, *self._others) if origin.untold), None)
