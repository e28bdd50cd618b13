"""Lets training come to its turn while the background works.

A thread that computes keeps the interpreter's lock for 5 ms before it is made to give it up, and
longer inside one long call of the library. So work is done in short pieces with pauses.
"""

from __future__ import annotations

import time
from collections.abc import Callable

BURST = 0.0005
# Long enough for a thread that waits for the lock to wake up and take it.
PAUSE = 0.0001


class Breath:
    """Is called between pieces of work, and pauses where the last pause is long enough ago.

    Args:
        clock: seconds that only grow.
        sleep: pauses for some seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._since = clock()

    def __call__(self) -> None:
        """Pause, if it is time to."""
        if self._clock() - self._since >= BURST:
            self._sleep(PAUSE)
            self._since = self._clock()
