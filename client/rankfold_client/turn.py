"""Lets one report after another be written, and nobody wait long for one that a signal stopped."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

# How long others wait for a report: it takes microseconds, or as long as the handler of a signal
# that came in the middle of it.
PATIENCE = 0.25


class Turn:
    """Whose turn it is to put an item where it waits.

    Attributes:
        since: when the one whose turn it is began; None where it is nobody's.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        # A handler that reports in the middle of a report has it already.
        self._lock = threading.RLock()

    def take(self) -> AbstractContextManager[bool]:
        """Wait for the turn and hold it in the block, which is told whether it came to it.

        Handlers run in the main thread alone: that one has its turn in the end, by a lock that is
        taken in one step, as an exception of a handler may come after any. Others wait for so long
        that a handler must be why.
        """
        if threading.get_ident() == threading.main_thread().ident:
            return self._lock
        return self._patiently()

    @contextlib.contextmanager
    def between(self) -> Iterator[None]:
        """Hold back all who would take the turn; for threads of the background.

        Raises:
            TimeoutError: somebody has it and does not end.
        """
        with self._patiently() as mine:
            if not mine:
                raise TimeoutError("a report is not written to its end")
            yield

    @contextlib.contextmanager
    def _patiently(self) -> Iterator[bool]:
        since = self.since
        passed = 0.0 if since is None else time.monotonic() - since
        mine = self._lock.acquire(timeout=max(0.0, PATIENCE - passed))
        try:
            yield mine
        finally:
            if mine:
                self._lock.release()
