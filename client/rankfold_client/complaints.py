"""Says in the log what went wrong with delivery, with counts, at most once a minute."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

SILENCE = 60.0
FAILED = "tries failed"

log = logging.getLogger("rankfold")


class Complaints:
    """Counts by kind what went wrong, until the next line may be written.

    Args:
        who: how the line begins.
        clock: seconds that only grow.
    """

    def __init__(self, who: str, clock: Callable[[], float]) -> None:
        self._who, self._clock = who, clock
        self._counts: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}
        self._next = clock()

    def note(self, what: str, number: int, why: str) -> None:
        """Count something that went wrong, with the latest reason for it."""
        self._counts[what] += number
        self._reasons[what] = why

    def speak(self, waiting: int, *, last: bool = False) -> None:
        """Write what was noted since the last line, unless that was less than a minute ago.

        Args:
            waiting: how many items are not delivered yet.
            last: nobody will ask again, so it is written now; but not tries that failed before
                all was delivered.
        """
        due = self._clock() >= self._next
        if last:
            due = waiting > 0 or self._counts.keys() != {FAILED}
        if not self._counts or not due:
            return
        told = "; ".join(
            f"{n} {'try failed' if (what, n) == (FAILED, 1) else what} ({self._reasons[what]})"
            for what, n in self._counts.items()
        )
        items = "1 item waits" if waiting == 1 else f"{waiting} items wait"
        log.warning("%s: %s; %s", self._who, told, items)
        self._counts.clear()
        self._next = self._clock() + SILENCE
