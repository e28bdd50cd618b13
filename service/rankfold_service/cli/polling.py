"""Asks an aggregator again and again, and bears with what may be there the next time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from rankfold.errors import NotFound, RankfoldError, Unavailable, Unreachable

POLL_SECONDS = 1.0

T = TypeVar("T")


def polled(
    ask: Callable[[], T],
    interval: float = POLL_SECONDS,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[T | RankfoldError, bool]]:
    """Yield what is answered, or why nothing is, and whether the time is up then.

    Args:
        ask: asks once.
        interval: seconds between an answer and the next question; longer where the aggregator
            asks for that.
        seconds: how long to go on; the last question is asked at the very end.
        clock: what time is measured with.
        sleep: what it is passed with.

    Raises:
        RankfoldError: a refusal, which asking again does not change.
    """
    deadline = clock() + seconds
    while True:
        pause = interval
        answer: T | RankfoldError
        try:
            answer = ask()
        except (NotFound, Unreachable) as error:
            answer = error
        except Unavailable as error:
            answer, pause = error, max(pause, error.retry_after)
        left = deadline - clock()
        yield answer, left <= 0
        if left <= 0:
            return
        sleep(min(pause, left))
