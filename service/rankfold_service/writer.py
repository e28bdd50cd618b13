"""The one writer: a thread that owns the store and shares each commit among waiting reports.

Reports and reads are handed to it from the event loop. While one commit is under way the loop
gathers what arrives; all of it goes into the next one. A read runs between two commits, so it
sees nothing that is not durable, and no lock is needed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from rankfold.errors import (
    Overloaded,
    RankfoldError,
    StoreDamaged,
    StoreUnavailable,
    Unavailable,
)
from rankfold.wire import Receipt, Report
from rankfold_service.store import Arrival, Store

T = TypeVar("T")
Answer = Callable[[Any], None]
# A report, or a function of the store, and who is told what became of it.
Waiting = tuple[Answer, Arrival]
Call = tuple[Answer, Callable[[Store], Any]]
_log = logging.getLogger("rankfold.writer")

# One commit's share of reports and of their rows: more would make who waits for it wait longer.
MOST_PER_COMMIT = 512
MOST_ROWS_PER_COMMIT = 20_000


class Writer:
    """Runs every call of a store in one thread of its own.

    Args:
        store: only this writer calls it from now on.
        queue_limit: reports that may wait.
        max_wait: seconds that the oldest of them may have waited before new ones are refused.
        observe_commit: is told how many seconds each commit took.
        after_commit: is called once a commit is answered, before the next one.
        now: the wall clock, in seconds since the epoch.
    """

    def __init__(
        self,
        store: Store,
        *,
        queue_limit: int = 4096,
        max_wait: float = 5.0,
        observe_commit: Callable[[float], None] | None = None,
        after_commit: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._queue_limit = queue_limit
        self._max_wait = max_wait
        self._observe_commit = observe_commit
        self._after_commit = after_commit
        self._now = now
        self._gathered: deque[Waiting] = deque()
        self._calls: list[Call] = []
        # One commit's reports and the calls after it; None is the end.
        self._handed: SimpleQueue[tuple[list[Waiting], list[Call]] | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._going = False
        self._closing = False
        self._ending = threading.Lock()
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._work, name="rankfold-writer")

    @property
    def depth(self) -> int:
        """How many reports wait."""
        return len(self._gathered)

    @property
    def waited_for(self) -> bool:
        """Whether anything waits until what is being done now is over."""
        return bool(self._gathered) or not self._handed.empty()

    @property
    def closing(self) -> bool:
        """Whether new work is refused because the end has begun."""
        return self._closing

    @property
    def behind(self) -> bool:
        """Whether what is being written now takes longer than anybody should wait."""
        since = self._busy_since
        return since is not None and time.monotonic() - since > self._max_wait

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def submit(self, report: Report) -> Receipt:
        """Return a report's receipt once it is durable.

        Raises:
            Unavailable: too many wait, or the writer is too far behind; nothing was applied.
            RankfoldError: what the store said about this report.
        """
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.hand_over(report, partial(_resolve, future))
        return await future

    def hand_over(self, report: Report, answer: Answer) -> None:
        """Take a report; `answer` is called in the event loop once it is durable, or has failed.

        Args:
            report: what to take.
            answer: gets the receipt, or the error for which nothing was applied.

        Raises:
            Unavailable: too many wait, or the writer is too far behind; nothing was applied.
        """
        if len(self._gathered) >= self._queue_limit:
            raise Overloaded(f"{self._queue_limit} reports wait to be written already")
        if self.behind:
            raise StoreUnavailable("the store takes too long to write", retry_after=self._max_wait)
        self._gather(self._gathered.append, (answer, Arrival(report, self._now())))

    async def call(self, function: Callable[[Store], T]) -> T:
        """Return what a function of the store returns, run between commits."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._gather(self._calls.append, (partial(_resolve, future), function))
        return await future

    def close(self) -> None:
        """Finish what was handed over, then close the store and end the thread."""
        with self._ending:
            self._closing = True
            self._handed.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        self._store.close()

    def _gather(self, add: Callable[[T], None], work: T) -> None:
        """Add work to what the thread gets next."""
        with self._ending:
            if self._closing:
                raise Unavailable("the aggregator is shutting down")
            add(work)
        if not self._going:
            # Not at once: what arrives at the same moment goes into the same commit.
            self._going = True
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Hand what was gathered over to the thread; at the end that takes it by itself."""
        with self._ending:
            self._going = bool(self._gathered or self._calls) and not self._closing
            if self._going:
                self._handed.put(self._next())

    def _work(self) -> None:
        while (work := self._handed.get()) is not None:
            self._do(*work)
        while self._gathered or self._calls:  # nobody adds any more
            self._do(*self._next())

    def _do(self, reports: list[Waiting], calls: list[Call]) -> None:
        self._busy_since = time.monotonic()
        self._tell(self._landed, self._write(reports) if reports else [])
        for answer, function in calls:
            self._tell(answer, _attempt(partial(function, self._store)))
        _attempt(self._store.maintain)
        self._after_commit()
        self._busy_since = None

    def _landed(self, outcomes: Sequence[tuple[Answer, Any]]) -> None:
        """Go on to the next commit, and answer the reports of the last one."""
        self._go_on()
        for answer, outcome in outcomes:
            try:
                answer(outcome)
            except Exception:  # noqa: BLE001 - one answer that fails costs no other report its own
                _log.exception("a report could not be answered")

    def _tell(self, answer: Callable[[T], None], outcome: T) -> None:
        """Have something called in the event loop, unless that has ended."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(answer, outcome)

    def _next(self) -> tuple[list[Waiting], list[Call]]:
        """Take the next commit's reports and all calls."""
        calls, self._calls = self._calls, []
        return self._share(), calls

    def _share(self) -> list[Waiting]:
        """Take the next commit's reports, at least one where any waits."""
        share: list[Waiting] = []
        rows = 0
        while self._gathered and len(share) < MOST_PER_COMMIT and rows < MOST_ROWS_PER_COMMIT:
            share.append(self._gathered.popleft())
            rows += len(share[-1][1].report)
        return share

    def _write(self, share: Sequence[Waiting]) -> list[tuple[Answer, Any]]:
        """Take reports in one commit; return each answer and what it is to be told."""
        started = time.perf_counter()
        outcomes = _attempt(partial(self._store.ingest, [arrival for _, arrival in share]))
        if self._observe_commit is not None:
            self._observe_commit(time.perf_counter() - started)
        if isinstance(outcomes, BaseException):
            if len(share) > 1 and _is_of_one(outcomes):
                # What one report brings out must not cost the others theirs.
                half = len(share) // 2
                return self._write(share[:half]) + self._write(share[half:])
            outcomes = [outcomes] * len(share)
        return [(answer, told) for (answer, _), told in zip(share, outcomes, strict=True)]


def _is_of_one(error: BaseException) -> bool:
    """Whether other reports may be taken: it is a defect, or the books of some are damaged."""
    return isinstance(error, StoreDamaged) or not isinstance(error, RankfoldError)


def _attempt(function: Callable[[], Any]) -> Any:
    """Return what a function returns, or the exception that it raised: it has its waiter."""
    try:
        return function()
    except RankfoldError as error:
        return error
    except Exception as error:  # noqa: BLE001 - the thread outlives a defect; its waiter gets it
        _log.exception("the store failed in an unforeseen way")
        return error


def _resolve(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():  # its client went away; what it sent was taken all the same
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
