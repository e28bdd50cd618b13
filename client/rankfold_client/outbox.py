"""The bounded queue between training, which only ever puts, and the one thread that sends."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count, islice
from struct import Struct

from rankfold_client.items import FINISH, Item, named, pack, size_of, unpack
from rankfold_client.origin import Origin
from rankfold_client.spool.segment import Segment
from rankfold_client.spool.writer import Writer

_FINISH = pack(FINISH)
# Before a packed item: since when it waits, up to where its segment holds it, and which that is.
# One string with the item, so that one step takes both in, which nothing comes in between of.
_HEAD = Struct("<dQQ")
_NOWHERE = 0
# A signal's handler that waits too may be given the change that the one it interrupted waits for.
LOOK_EVERY = 0.1


class Outbox:
    """Items in order until they are delivered or given up; putting never waits for the network.

    What is being sent stays inside until `settle`, so that a retry takes the same items and
    the bounds hold for everything that the client keeps. With a spool every item is on disk
    too, and what finds no room in memory waits there alone until it is fed back.

    A signal's handler may come between any two steps of a put, and put, wait or raise: whatever
    a put changes is complete by itself, and the item comes last. What a handler puts in the middle
    of another put waits in memory only.

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
        # Each with its head before it.
        self._items: deque[bytes] = deque()
        self._segments: dict[int, Segment] = {}
        self._numbers: dict[Segment, int] = {}
        self._next_number = count(_NOWHERE + 1)
        self._others: list[Origin] = []
        self._bytes = self._refused = self._unread = self._spilled = self._nowhere = 0
        self._amid = False
        # Taken by itself: a handler may raise where a condition has taken it and not said so yet.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
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
        return self._nowhere

    def put(self, item: Item) -> int:
        """Append an item and return how many are ready now; 0 where it is dropped."""
        try:
            packed = pack(item)
        except ValueError as error:
            self.give_up(f"{named(item)}: {error}")
            return 0
        with self.putting:
            if self._amid:
                return self._put_amid(packed)
            self._amid = True
            try:
                return self._put(item, packed)
            finally:
                self._amid = False

    def _put(self, item: Item, packed: bytes) -> int:
        writer = self._writer
        if writer is not None:
            if writer.current is not None:
                self._heed(writer.current)
            if writer.full:
                return self._drop("the spool is full")
        with self._lock:
            fits = self._fits(packed)
            in_turn = fits and not self._spilled
        segment = writer.append(item) if writer is not None else None
        if segment is None and not fits:
            return self._drop("the queue is full")
        with self._lock:
            if segment is None:
                return self._enter(packed, None, 0)
            segment.known = segment.end
            if in_turn:
                segment.read = segment.end
                return self._enter(packed, segment, segment.end)
            self._spill(segment)
            return max(1, len(self._items))

    def _put_amid(self, packed: bytes) -> int:
        """Put from a signal's handler, in the middle of another put: two would take one place."""
        if self._writer is not None:
            self._writer.skip("a signal came while another was written")
        with self._lock:
            return (
                self._enter(packed, None, 0)
                if self._fits(packed)
                else self._drop("the queue is full")
            )

    def _heed(self, segment: Segment) -> None:
        """Count a record that was appended when a handler raised, so that nobody has counted it."""
        if segment.known != segment.end:
            with self._lock:
                segment.known = segment.end
                self._spill(segment)

    def give_up(self, why: str) -> None:
        """Count an item that never came to be put."""
        with self.putting:
            self._drop(why)

    def age(self) -> float:
        """Return for how many seconds the oldest item has waited; 0 where there is none."""
        with self._lock:
            return self._clock() - _HEAD.unpack_from(self._items[0])[0] if self._items else 0.0

    def peek(self, most: int) -> tuple[Origin, list[bytes]]:
        """Return up to `most` of the oldest items of one origin, packed; a finish comes alone.

        Where none is ready, the origin is one with something to tell.
        """
        with self._lock:
            if not self._items:
                return self._untold() or self.own, []
            waiting = list(islice(self._items, most))
            origins = {number: segment.origin for number, segment in self._segments.items()}
        items: list[bytes] = []
        origin = None
        for each in waiting:
            _, _, number = _HEAD.unpack_from(each)
            here = origins.get(number, self.own)
            if here is not (origin or here):
                break
            origin = here
            items.append(each[_HEAD.size :])
        if _FINISH in items:
            items = items[: items.index(_FINISH)] or [_FINISH]
        return origin or self.own, items

    def untold(self) -> bool:
        """Whether the aggregator has still to be told that something was given up."""
        with self._lock:
            return self._untold() is not None

    def settle(self, number: int, *, delivered: bool) -> None:
        """Take out the oldest items: they were delivered, or are given up and counted so."""
        with self._lock:
            for _ in range(number):
                self._leave(delivered=delivered)
            if delivered:
                self.delivered += number
            else:
                self._refused += number
            self._changed.notify_all()

    def room(self) -> int:
        """Return how many items may be fed: half of the queue is left to those that are put."""
        with self._lock:
            if self._bytes >= self._max_bytes // 2 and self._items:
                return 0
            return max(0, max(1, self._max_items // 2) - len(self._items))

    def adopt(self, segment: Segment) -> None:
        """Take over what another process left in a segment."""
        with self._lock:
            self._others.append(segment.origin)
            self._unread += segment.unread

    def retire(self, segment: Segment) -> None:
        """Forget a segment that is done with."""
        with self._lock:
            if segment.origin in self._others:
                self._others.remove(segment.origin)
            self._segments.pop(self._numbers.pop(segment, _NOWHERE), None)
            self._changed.notify_all()

    def on_disk_only(self, segment: Segment) -> tuple[int, int]:
        """Return where what we know of a segment ends, and how many records are on disk only."""
        with self.putting:
            return segment.known, segment.unread

    def in_memory(self, segment: Segment) -> list[tuple[Item, int]]:
        """Return the items in memory that a segment holds too, each with where it ends there."""
        with self._lock:
            number, waiting = self._numbers.get(segment), list(self._items)
        found = []
        for each in waiting:
            _, end, where = _HEAD.unpack_from(each)
            if where == number:
                found.append((unpack(each[_HEAD.size :]), end))
        return found

    def feed(self, segment: Segment, records: Sequence[tuple[Item, int]], lost: int) -> None:
        """Bring items into memory that waited in a segment alone.

        Args:
            segment: where they waited.
            records: the items, each with the offset at which it ends.
            lost: how many more were there and cannot be read.
        """
        with self._lock:
            for item, end in records:
                self._enter(pack(item), segment, end)
            number = len(records) + lost
            segment.unread -= number
            self._unread -= number
            if segment.origin is self.own:
                self._spilled -= number
            segment.origin.dropped += lost
            self._refused += lost

    def notify(self) -> None:
        """Wake those who wait."""
        with self._lock:
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds that is looked at on each change; return whether it does."""
        deadline = time.monotonic() + timeout
        while not self._wait_for(condition, min(LOOK_EVERY, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                return False
        return True

    def _wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        try:
            with self._lock:
                return self._changed.wait_for(condition, timeout)
        except RuntimeError as error:
            # A signal's exception between the release of the lock and the wait: leaving the
            # block releases it again, which hides what the handler raised.
            if error.__context__ is None:
                raise
            raise error.__context__ from None

    def _fits(self, packed: bytes) -> bool:
        room = self._max_bytes - self._bytes
        return len(self._items) < self._max_items and size_of(packed) <= room

    def _enter(self, packed: bytes, segment: Segment | None, end: int) -> int:
        """Take an item in, and return how many are here.

        Nothing is called between the counting and the last step, so that no handler comes there.
        """
        number = _NOWHERE if segment is None else self._number(segment)
        entry = _HEAD.pack(self._clock(), end, number) + packed
        size, append = size_of(packed), self._items.append
        self._bytes += size
        if segment is None:
            self._nowhere += 1
        else:
            segment.pending += 1
        append(entry)
        return len(self._items)

    def _number(self, segment: Segment) -> int:
        number = self._numbers.get(segment)
        if number is None:
            number = next(self._next_number)
            self._segments[number] = segment
            self._numbers[segment] = number
        return number

    def _spill(self, segment: Segment) -> None:
        """Count a record of ours that is on disk only."""
        segment.unread += 1
        self._unread += 1
        self._spilled += 1

    def _leave(self, *, delivered: bool) -> None:
        taken = self._items.popleft()
        _, end, number = _HEAD.unpack_from(taken)
        self._bytes -= size_of(taken[_HEAD.size :])
        segment = self._segments.get(number)
        if segment is None:
            self._nowhere -= 1
        else:
            segment.pending -= 1
            segment.done = end
        if not delivered:
            origin = self.own if segment is None else segment.origin
            origin.dropped += 1

    def _drop(self, why: str) -> int:
        with self._lock:
            self.overflow += 1
            self.own.dropped += 1
            self.why_full = why
        if self._writer is not None:
            self._writer.note_dropped()
        return 0

    def _untold(self) -> Origin | None:
        return next((origin for origin in (self.own, *self._others) if origin.untold), None)
