"""The one writer: a thread that owns the store and shares each commit among waiting reports.

Reports and reads are handed to it from the event loop. It takes all reports that wait in one
commit, answers them after it, and then runs the reads that wait: so a read sees nothing that is
not durable, and no lock is needed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from rankfold.errors import Overloaded, RankfoldError, StoreUnavailable, Unavailable
from rankfold.wire import Receipt, Report
from rankfold_service.store import Arrival, Store

T = TypeVar("T")
Outcome = tuple[asyncio.Future[Any], Any]
_log = logging.getLogger("rankfold.writer")

# One commit's share of reports and of their rows: more would make who waits for it wait longer.
MOST_PER_COMMIT = 512
MOST_ROWS_PER_COMMIT = 20_000


class _Task(NamedTuple, Generic[T]):
    """Something for the writer to do, and the future that waits for its outcome."""

    future: asyncio.Future[Any]
    what: T


class Writer:
    """Runs every call of a store in one thread of its own.

    Args:
        store: only this writer calls it from now on.
        queue_limit: reports that may wait.
        max_wait: seconds that the oldest of them may have waited before new ones are refused.
        observe_commit: is told how many seconds each commit took.
        now: the wall clock, in seconds since the epoch.
    """

    def __init__(
        self,
        store: Store,
        *,
        queue_limit: int = 4096,
        max_wait: float = 5.0,
        observe_commit: Callable[[float], None] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._queue_limit = queue_limit
        self._max_wait = max_wait
        self._observe_commit = observe_commit
        self._now = now
        self._reports: deque[_Task[Arrival]] = deque()
        self._calls: deque[_Task[Callable[[Store], Any]]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._idle = False
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._work, name="rankfold-writer")

    @property
    def depth(self) -> int:
        """How many reports wait."""
        return len(self._reports)

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
        task = _Task(_new_future(), Arrival(report, self._now()))
        self._refuse_if_behind()
        self._hand_over(self._reports, task)
        receipt: Receipt = await task.future
        return receipt

    async def call(self, function: Callable[[Store], T]) -> T:
        """Return what a function of the store returns, run between commits."""
        task = _Task(_new_future(), function)
        self._hand_over(self._calls, task)
        result: T = await task.future
        return result

    def close(self) -> None:
        """Finish what was handed over, then close the store and end the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self._store.close()

    def _refuse_if_behind(self) -> None:
        if len(self._reports) >= self._queue_limit:
            raise Overloaded(f"{self._queue_limit} reports wait to be written already")
        if self.behind:
            raise StoreUnavailable("the store takes too long to write", retry_after=self._max_wait)

    def _hand_over(self, queue: deque[_Task[T]], task: _Task[T]) -> None:
        with self._wake:
            if self._closing:
                raise Unavailable("the aggregator is shutting down")
            queue.append(task)
            if self._idle:
                self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._idle = True
                while not (self._reports or self._calls or self._closing):
                    self._wake.wait()
                self._idle = False
                if not (self._reports or self._calls):
                    return
                reports = self._share()
                calls = list(self._calls)
                self._calls.clear()
            self._busy_since = time.monotonic()
            self._write(reports)
            for future, call in calls:
                _answer([(future, _attempt(partial(call, self._store)))])
            if not self._reports:
                _attempt(self._store.maintain)
            self._busy_since = None

    def _share(self) -> list[_Task[Arrival]]:
        """Take the next commit's reports off the queue, at least one where any waits."""
        share: list[_Task[Arrival]] = []
        rows = 0
        while self._reports and len(share) < MOST_PER_COMMIT and rows < MOST_ROWS_PER_COMMIT:
            share.append(self._reports.popleft())
            rows += len(share[-1].what.report)
        return share

    def _write(self, tasks: Sequence[_Task[Arrival]]) -> None:
        """Take reports in one commit and answer them."""
        if not tasks:
            return
        started = time.perf_counter()
        outcomes = _attempt(partial(self._store.ingest, [task.what for task in tasks]))
        if self._observe_commit is not None:
            self._observe_commit(time.perf_counter() - started)
        if isinstance(outcomes, BaseException):
            if len(tasks) > 1 and not isinstance(outcomes, RankfoldError):
                # A defect that one report brings out must not cost the others theirs.
                for task in tasks:
                    self._write([task])
                return
            outcomes = [outcomes] * len(tasks)
        _answer([(task.future, outcome) for task, outcome in zip(tasks, outcomes, strict=True)])


def _new_future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def _attempt(function: Callable[[], Any]) -> Any:
    """Return what a function returns, or the exception that it raised: it has its waiter."""
    try:
        return function()
    except RankfoldError as error:
        return error
    except Exception as error:  # noqa: BLE001 - the thread outlives a defect; its waiter gets it
        _log.exception("the store failed in an unforeseen way")
        return error


def _answer(outcomes: Sequence[Outcome]) -> None:
    """Hand outcomes back to the event loop, all in one go."""
    loop = outcomes[0][0].get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(_resolve, outcomes)


def _resolve(outcomes: Sequence[Outcome]) -> None:
    for future, outcome in outcomes:
        if future.done():  # its client went away; what it sent was taken all the same
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
