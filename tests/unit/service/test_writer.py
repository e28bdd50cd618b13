"""The one writer: commits are shared, refusals are clear, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from rankfold.errors import (
    Inconsistent,
    NotFound,
    Overloaded,
    RankfoldError,
    StoreDamaged,
    StoreUnavailable,
    Unavailable,
)
from rankfold.rules import RuleSet
from rankfold.wire import Receipt
from rankfold_service.store import Arrival
from rankfold_service.store.memory import MemoryStore
from rankfold_service.writer import Writer
from support.reports import SERIES, partial, report


class GatedStore(MemoryStore):
    """A memory store whose commits wait until they are let through."""

    def __init__(self) -> None:
        super().__init__(RuleSet())
        self.gate = threading.Event()
        self.gate.set()
        self.commits: list[int] = []
        self.fail: Callable[[Sequence[Arrival]], None] = lambda arrivals: None
        self.closed = False

    def ingest(self, arrivals: Sequence[Arrival]) -> list[Receipt | RankfoldError]:
        """Wait for the gate, then take what is left of the failure."""
        self.gate.wait(10)
        self.commits.append(len(arrivals))
        self.fail(arrivals)
        return super().ingest(arrivals)

    def close(self) -> None:
        """Note that it was closed."""
        self.closed = True


@contextmanager
def running(store: GatedStore, **options: Any) -> Iterator[Writer]:
    """Run a writer for the length of a block."""
    writer = Writer(store, now=lambda: 7.0, **options)
    writer.start()
    try:
        yield writer
    finally:
        store.gate.set()
        writer.close()


async def taken(writer: Writer) -> None:
    """Wait until the writer has begun with what was handed over."""
    await asyncio.sleep(0)
    while writer.depth:
        await asyncio.sleep(0)


def test_writer_shares_one_commit_among_waiting_reports() -> None:
    """While one commit is under way, all that arrives goes into the next one."""
    store = GatedStore()

    async def scenario(writer: Writer) -> list[Receipt]:
        store.gate.clear()
        tasks = [asyncio.create_task(writer.submit(report(rank=0)))]
        await taken(writer)
        tasks += [
            asyncio.create_task(writer.submit(report(rank=i, partials=[partial()])))
            for i in range(20)
        ]
        await asyncio.sleep(0)
        store.gate.set()
        return await asyncio.gather(*tasks)

    with running(store) as writer:
        receipts = asyncio.run(scenario(writer))
    assert receipts == [Receipt(0, 0, 0)] + [Receipt(1, 0, 0)] * 20
    assert store.commits == [1, 20]
    assert store.closed


def test_writer_says_after_each_commit_that_it_is_over() -> None:
    """When its reports are answered, and after what was read too."""
    over = []

    async def scenario(writer: Writer) -> None:
        for rank in range(3):
            await writer.submit(report(rank=rank))
            await writer.call(lambda store: None)
            assert len(over) in (2 * rank + 1, 2 * rank + 2)  # the thread may still be at the call

    with running(GatedStore(), after_commit=lambda: over.append(None)) as writer:
        asyncio.run(scenario(writer))
    assert len(over) == 6


def test_writer_gives_each_report_its_own_outcome() -> None:
    """A refused report does not touch its neighbours in the commit."""

    async def scenario(writer: Writer) -> list[object]:
        bodies = [report(world_size=2), report(world_size=3), report(partials=[partial()])]
        return list(
            await asyncio.gather(*(writer.submit(b) for b in bodies), return_exceptions=True)
        )

    with running(GatedStore()) as writer:
        first, second, third = asyncio.run(scenario(writer))
    assert first == Receipt(0, 0, 0)
    assert isinstance(second, Inconsistent)
    assert third == Receipt(1, 0, 0)


def test_writer_read_sees_what_was_acknowledged() -> None:
    """A read that begins after a receipt finds the report."""

    async def scenario(writer: Writer) -> int:
        await writer.submit(report(partials=[partial()]))
        return await writer.call(
            lambda store: store.run("default", "run").totals("all").series[SERIES].partials
        )

    with running(GatedStore()) as writer:
        assert asyncio.run(scenario(writer)) == 1


def test_writer_read_that_fails_raises_where_it_is_awaited() -> None:
    """A run that is not known is the reader's error, not the writer's end."""

    async def scenario(writer: Writer) -> None:
        with pytest.raises(NotFound):
            await writer.call(lambda store: store.run("default", "none"))
        assert await writer.call(lambda store: store.names()) == []

    with running(GatedStore()) as writer:
        asyncio.run(scenario(writer))


def test_writer_refuses_when_too_many_wait() -> None:
    """Beyond the queue's limit the answer is immediate and retryable; nothing is applied."""
    store = GatedStore()

    async def scenario(writer: Writer) -> None:
        store.gate.clear()
        first = asyncio.create_task(writer.submit(report()))
        await taken(writer)
        waiting = [asyncio.create_task(writer.submit(report(rank=i))) for i in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="wait to be written") as refused:
            await writer.submit(report(rank=9))
        assert refused.value.retryable
        store.gate.set()
        await asyncio.gather(first, *waiting)

    with running(store, queue_limit=3) as writer:
        asyncio.run(scenario(writer))
    assert set(store.ledgers["default", "run"].latest.reporters) == {0, 1, 2}


def test_writer_refuses_when_a_commit_takes_too_long() -> None:
    """Behind a hanging disk new reports are refused instead of queued."""
    store = GatedStore()

    async def scenario(writer: Writer) -> None:
        store.gate.clear()
        first = asyncio.create_task(writer.submit(report()))
        await taken(writer)
        while not writer.behind:
            await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable, match="takes too long"):
            await writer.submit(report(rank=1))
        store.gate.set()
        await first

    with running(store, max_wait=0.01) as writer:
        asyncio.run(scenario(writer))


def test_writer_tells_all_when_a_commit_fails() -> None:
    """A disk that fails is told to each report of the commit; the next commit is tried anew."""
    store = GatedStore()

    def fail(arrivals: Sequence[Arrival]) -> None:
        raise StoreUnavailable("no disk")

    async def scenario(writer: Writer) -> None:
        store.fail = fail
        outcomes = await asyncio.gather(
            *(writer.submit(report(rank=i)) for i in range(3)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
        store.fail = lambda arrivals: None
        assert await writer.submit(report()) == Receipt(0, 0, 0)

    with running(store) as writer:
        asyncio.run(scenario(writer))


@pytest.mark.parametrize("error", [ZeroDivisionError, StoreDamaged])
def test_writer_confines_what_one_report_brings_out_to_it(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """A defect or damage costs that report its own, not those that share its commit."""
    store = GatedStore()

    def fail(arrivals: Sequence[Arrival]) -> None:
        if any(arrival.report.rank == 1 for arrival in arrivals):
            raise error("rank 1")

    async def scenario(writer: Writer) -> list[object]:
        store.fail = fail
        return list(
            await asyncio.gather(
                *(writer.submit(report(rank=i)) for i in range(13)), return_exceptions=True
            )
        )

    with running(store) as writer:
        outcomes = asyncio.run(scenario(writer))
    assert [type(o) for o in outcomes] == [Receipt, error, *[Receipt] * 11]
    assert ("unforeseen" in caplog.text) == (error is ZeroDivisionError)
    # In halves: it is found in as many steps as the number of reports has digits.
    assert store.commits == [13, 6, 3, 1, 2, 1, 1, 3, 7]


def test_writer_takes_a_report_whose_client_went_away() -> None:
    """A cancelled wait does not half-undo what was handed over."""
    store = GatedStore()

    async def scenario(writer: Writer) -> None:
        store.gate.clear()
        task = asyncio.create_task(writer.submit(report(partials=[partial()])))
        await taken(writer)
        task.cancel()
        store.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(await writer.call(lambda s: s.names())) == 1

    with running(store) as writer:
        asyncio.run(scenario(writer))


def test_writer_that_is_closed_refuses_and_has_finished_what_it_had() -> None:
    """What was handed over before the end is answered, what comes after is refused."""
    store = GatedStore()
    writer = Writer(store, now=lambda: 7.0)
    writer.start()

    async def scenario() -> None:
        store.gate.clear()
        task = asyncio.create_task(writer.submit(report(partials=[partial()])))
        await taken(writer)
        closing = asyncio.create_task(asyncio.to_thread(writer.close))
        while not writer.closing:
            await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="shutting down"):
            await writer.submit(report())
        store.gate.set()
        assert await task == Receipt(1, 0, 0)
        await closing

    asyncio.run(scenario())
    assert store.closed
