"""The bounded queue between training, which only ever puts, and the one thread that sends."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import Literal

from rankfold_client.changes import Changes
from rankfold_client.items import FINISH, Item, named, pack, size_of, unpack
from rankfold_client.origin import Origin
from rankfold_client.spool.segment import Segment
from rankfold_client.spool.writer import Writer
from rankfold_client.turn import Turn

_FINISH = pack(FINISH)
# Before a packed item: since when it waits, up to where its segment holds it, and which that is.
# One string with the item, so that one step takes both in, which nothing comes in between of.
_HEAD = Struct("<dQQ")
_NOWHERE = 0


class Outbox:
    """Items in order until they are delivered or given up; putting never waits for the network.

    What is being sent stays inside until `settle`, so that a retry takes the same items and
    the bounds hold for everything that the client keeps. With a spool every item is on disk
    too, and what finds no room in memory waits there alone until it is fed back.

    A signal's handler may come wherever Python calls something, and put, wait or raise. So the
    lock is held by who puts only where nothing is called, and what a put changes is changed there
    in one go. What is put in the middle of another put, by a handler or while one keeps that
    waiting, waits in memory only.

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
        turn: held while an item is written and takes its place, so that the disk keeps the order.
        changes: tell those who wait of what is delivered.
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
        self._others: list[Origin] = []
        self._bytes = self._refused = self._unread = self._nowhere = 0
        # How many items ever came into memory and left it, and of ours on disk only and back.
        self._entered = self._settled = self._spilled = self._fed = 0
        self._lock, self.changes = threading.RLock(), Changes()
        self.turn = Turn() if writer is None else writer.turn

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
        with self.turn.take() as mine:
            if not mine or self.turn.since is not None:
                return self._put_amid(packed)
            self.turn.since = time.monotonic()
            try:
                return self._put(item, packed)
            finally:
                self.turn.since = None

    def _put(self, item: Item, packed: bytes) -> int:
        writer = self._writer
        if writer is not None:
            if writer.current is not None:
                self._heed(writer.current)
            if writer.full:
                return self._drop("the spool is full")
        fits = self._fits(packed)
        in_turn = fits and self._fed == self._spilled
        segment = writer.append(item) if writer is not None else None
        if segment is None:
            return self._enter(packed, None, 0) if fits else self._drop("the queue is full")
        if in_turn:
            return self._enter(packed, segment, segment.end)
        self._spill(segment)
        return max(1, len(self._items))

    def _put_amid(self, packed: bytes) -> int:
        """Put in the middle of another put: two would take one place on disk."""
        if self._writer is not None:
            self._writer.skip("a signal came while another was written")
        fits = self._fits(packed)
        return self._enter(packed, None, 0) if fits else self._drop("the queue is full")

    def _heed(self, segment: Segment) -> None:
        """Count a record that was appended when a handler raised, so that nobody has counted it."""
        if segment.known != segment.end:
            self._spill(segment)

    def give_up(self, why: str) -> None:
        """Count an item that never came to be put."""
        with self.turn.take():
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
            origins = {number: each.origin for number, each in list(self._segments.items())}
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
        return self._untold() is not None

    def settle(self, number: int, *, delivered: bool) -> None:
        """Take out the oldest items: they were delivered, or are given up and counted so."""
        with self._lock:
            for _ in range(number):
                self._leave(delivered=delivered)
            self._settled += number
            if delivered:
                self.delivered += number
            else:
                self._refused += number
            self.changes.notify()

    def passing(self) -> Iterator[Literal[False]]:
        """Look, at each step, whether what waits at the first is settled, and end when it is.

        What comes meanwhile is not waited for, nor what is given up then.
        """
        spilled = self._spilled
        while self.unseen or self._fed < spilled or self._others_unread():
            yield False
        entered = self._entered
        while self._settled < entered:
            yield False
        lost = [(origin, origin.dropped) for origin in (self.own, *self._others)]
        while any(origin.told < dropped for origin, dropped in lost):
            yield False

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
            self._segments.pop(segment.number, None)
        self.changes.notify()

    def on_disk_only(self, segment: Segment) -> tuple[int, int]:
        """Return where what we know of a segment ends, and how many records are on disk only."""
        with self._lock:
            return segment.known, segment.unread

    def in_memory(self, segment: Segment) -> list[tuple[Item, int]]:
        """Return the items in memory that a segment holds too, each with where it ends there."""
        with self._lock:
            waiting = list(self._items)
        found = []
        for each in waiting:
            _, end, where = _HEAD.unpack_from(each)
            if where == segment.number:
                found.append((unpack(each[_HEAD.size :]), end))
        return found

    def keep_rest(self) -> None:
        """At the end, write what waits in memory only to disk after all.

        What cannot be written is counted as given up, for whoever delivers the rest to tell. It
        lies behind newer items then, which the aggregator takes in any order.
        """
        with self._lock:
            waiting = deque(each for each in self._items if not _HEAD.unpack_from(each)[2])
        with contextlib.suppress(TimeoutError), self.turn.between():
            while waiting and self._keep(waiting[0]):
                waiting.popleft()
        with self._lock:
            self.own.dropped += len(waiting)

    def _keep(self, entry: bytes) -> bool:
        writer = self._writer
        if not writer or writer.full or not (segment := writer.append(unpack(entry[_HEAD.size :]))):
            return False
        with self._lock:
            segment.known = segment.end
            segment.unread += 1
        return True

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
                self._fed += number
            segment.origin.dropped += lost
            self._refused += lost

    def _fits(self, packed: bytes) -> bool:
        room = self._max_bytes - self._bytes
        return len(self._items) < self._max_items and size_of(packed) <= room

    def _enter(self, packed: bytes, segment: Segment | None, end: int) -> int:
        """Take an item in, and return how many are here."""
        number = _NOWHERE
        if segment is not None:
            number = segment.number
            self._segments[number] = segment
        entry = _HEAD.pack(self._clock(), end, number) + packed
        size, items = size_of(packed), self._items
        with self._lock:  # where nothing is called
            self._bytes += size
            self._entered += 1
            if segment is None:
                self._nowhere += 1
            else:
                segment.pending += 1
                if end > segment.known:
                    segment.known = segment.read = end
            items += (entry,)
        return len(items)

    def _spill(self, segment: Segment) -> None:
        """Count a record of ours that is on disk only."""
        with self._lock:  # where nothing is called
            segment.known = segment.end
            segment.unread += 1
            self._unread += 1
            self._spilled += 1

    def _others_unread(self) -> bool:
        with self._lock:  # where nothing is called
            return self._unread > self._spilled - self._fed

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
