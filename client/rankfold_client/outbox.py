"""The bounded queue between training, which only ever puts, and the one thread that sends."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import islice

from rankfold_client.report import FinishItem, Item


class Outbox:
    """Items in order until they are delivered or given up; putting never waits for the network.

    What is being sent stays inside until `settle`, so that a retry takes the same items and
    the bounds hold for everything that the client keeps.

    Args:
        max_items: how many items may wait.
        max_bytes: roughly how much memory they may take.
        clock: seconds that only grow.
    """

    def __init__(self, max_items: int, max_bytes: int, clock: Callable[[], float]) -> None:
        self._max_items, self._max_bytes, self._clock = max_items, max_bytes, clock
        self._items: deque[tuple[float, Item]] = deque()
        self._bytes = 0
        self._overflow = self._refused = 0
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def dropped(self) -> int:
        """How many items were given up so far; never falls."""
        return self._overflow + self._refused

    @property
    def overflow(self) -> int:
        """How many of those found no room."""
        return self._overflow

    def put(self, item: Item) -> int:
        """Append an item and return how many wait now; 0 where it found no room and is dropped."""
        with self._changed:
            size = item.size
            if len(self._items) >= self._max_items or self._bytes + size > self._max_bytes:
                self._overflow += 1
                return 0
            self._items.append((self._clock(), item))
            self._bytes += size
            return len(self._items)

    def age(self) -> float:
        """Return for how many seconds the oldest item has waited; 0 where there is none."""
        with self._changed:
            return self._clock() - self._items[0][0] if self._items else 0.0

    def peek(self, most: int) -> list[Item]:
        """Return up to `most` of the oldest items; a finish comes alone, after all before it."""
        with self._changed:
            items = [item for _, item in islice(self._items, most)]
        ends = [i for i, item in enumerate(items) if isinstance(item, FinishItem)]
        return items[: max(1, ends[0])] if ends else items

    def settle(self, number: int, *, delivered: bool) -> None:
        """Take out the oldest items: they were delivered, or are given up and counted so."""
        with self._changed:
            for _ in range(number):
                _, item = self._items.popleft()
                self._bytes -= item.size
            if not delivered:
                self._refused += number
            self._changed.notify_all()

    def notify(self) -> None:
        """Wake those who wait."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds that is looked at on each change; return whether it does."""
        with self._changed:
            return self._changed.wait_for(condition, timeout)
