"""Waits for what other threads change, with no lock that a signal's handler could come upon."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

# Not every change is worth word of it.
LOOK_EVERY = 0.1


class Changes:
    """Word to all who wait that something changed."""

    def __init__(self) -> None:
        self._waiting: list[SimpleQueue[None]] = []

    def notify(self) -> None:
        """Wake those who wait."""
        for each in tuple(self._waiting):
            if each.empty():
                each.put(None)

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds that is looked at on each change; return whether it does."""
        deadline, word = time.monotonic() + timeout, SimpleQueue[None]()
        self._waiting.append(word)
        try:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                with contextlib.suppress(Empty):
                    word.get(timeout=min(LOOK_EVERY, left))
        finally:
            self._waiting.remove(word)
        return True
