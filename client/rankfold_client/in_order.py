"""Hands items on in the order in which they came, though some wait for an accelerator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal

from rankfold.partial import Partial
from rankfold_client.items import Item
from rankfold_client.pending import Pending

# What makes an item, and the partial that it waits for.
_Waiting = tuple[Callable[[], Item], Pending | None]


class InOrder:
    """The way of items to the outbox: behind a pending one all others wait, so a commit too.

    Training only ever puts; one thread of the background calls `advance`. There is no lock, which
    a call that a signal's handler interrupted would hold: what is handed on leaves the queue last,
    so that what comes meanwhile queues behind it.

    Args:
        put: takes an item that is ready; says how many are ready to be sent, 0 where it had no
            room.
        give_up: is told why an item is given up, once for each.
        most: how many may wait; beyond, the newest is given up.
        pause: is called between items, so that training comes to its turn.
    """

    def __init__(
        self,
        put: Callable[[Item], int],
        give_up: Callable[[str], None],
        most: int,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self._put, self._give_up, self._most, self._pause = put, give_up, most, pause
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, item: Item) -> int:
        """Hand an item on, or queue it where something waits before it; as `put` says."""
        return self._queue(lambda: item, None) if self._waiting else self._put(item)

    def put_pending(self, pending: Pending, make: Callable[[Partial], Item]) -> int:
        """Queue what `make` makes of a partial once that is known; see `put`."""
        return self._queue(lambda: make(pending.result()), pending)

    def advance(self) -> None:
        """Hand on what does not wait any more; never waits for the accelerator."""
        for _ in range(len(self._waiting)):
            if not self._hand_on():
                return
            # While a request took its time, many may have come, and training waits for its turn.
            self._pause()

    def passing(self) -> Iterator[Literal[False]]:
        """Look, at each step, whether what waits at the first is handed on; end when it is."""
        last = next(reversed(self._waiting), None)
        while last is not None and last in self._waiting:
            yield False

    def _hand_on(self) -> bool:
        """Hand on what waits first, if it is known; say whether it was."""
        make, pending = self._waiting[0]
        if pending is not None and not pending.ready():
            return False
        try:
            self._put(make())
        except (ValueError, RuntimeError) as error:
            self._give_up(str(error))
        finally:
            self._waiting.popleft()
        return True

    def _queue(self, make: Callable[[], Item], pending: Pending | None) -> int:
        if len(self._waiting) >= self._most:
            self._give_up("the accelerator is too far behind")
            return 0
        self._waiting.append((make, pending))
        return len(self._waiting)
