"""A load generator for a process of its own: ready requests over connections that stay open."""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from typing import cast

import uvloop
from tests.bench.processes import cpu_seconds
from tests.bench.workload import Expected, Shape, Workload, build, warm_up

CONNECTIONS = 64
WARM_UP = 4 * CONNECTIONS
PATIENCE = 120.0

built = lru_cache(maxsize=1)(build)


@dataclass(frozen=True)
class Target:
    """A server to load: its port and its process."""

    port: int
    pid: int


@dataclass(frozen=True)
class Outcome:
    """What one measurement saw; times in seconds.

    Attributes:
        seconds: from the first request to the last answer.
        p50: the median time from a request to its answer.
        p99: what one answer in a hundred took longer than.
        server_cpu: processor time of the server.
        load_cpu: processor time of the load generator.
        answers: how many of each HTTP status.
        accepted: partials that the answers said were accepted.
        refused: partials that they said were duplicates or conflicts.
        expected: what the totals must say, by series.
    """

    seconds: float
    p50: float
    p99: float
    server_cpu: float
    load_cpu: float
    answers: dict[str, int]
    accepted: int
    refused: int
    expected: dict[str, Expected]


@dataclass
class _Queue:
    """Requests still to be sent, and what came of those that were."""

    requests: Iterator[bytes]
    busy: int = 0
    seconds: list[float] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class _Connection(asyncio.Protocol):
    """Sends a request, waits for its answer, and goes on with the next one."""

    def __init__(self) -> None:
        self._queue: _Queue
        self._buffer = b""
        self._started = 0.0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to write."""
        self.transport = cast(asyncio.Transport, transport)

    def work(self, queue: _Queue) -> None:
        """Take requests from a queue until it is empty."""
        self._queue = queue
        queue.busy += 1
        self._send()

    def _send(self) -> None:
        queue = self._queue
        request = next(queue.requests, None)
        if request is not None:
            self._started = time.perf_counter()
            self.transport.write(request)
            return
        queue.busy -= 1
        if not queue.busy:
            queue.done.set()

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer."""
        self._buffer += data
        if _whole(self._buffer):
            self._queue.seconds.append(time.perf_counter() - self._started)
            self._queue.answers.append(self._buffer)
            self._buffer = b""
            self._send()


def _whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return len(body) >= int(length)


def measure(target: Target, shape: Shape, run: str) -> Outcome:
    """Load a server with reports of one shape; called in the load generator's process."""
    return uvloop.run(_measure(target, built(shape, run)))


async def _measure(target: Target, workload: Workload) -> Outcome:
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(_Connection, "127.0.0.1", target.port))[1]
        for _ in range(CONNECTIONS)
    ]
    await _drive(connections, warm_up(WARM_UP))
    gc.collect()
    gc.disable()
    server, own, started = cpu_seconds(target.pid), time.process_time(), time.perf_counter()
    queue = await _drive(connections, workload.requests)
    seconds = time.perf_counter() - started
    own, server = time.process_time() - own, cpu_seconds(target.pid) - server
    gc.enable()
    for connection in connections:
        connection.transport.close()
    return _outcome(queue, seconds, server, own, workload.expected)


async def _drive(connections: Sequence[_Connection], requests: Sequence[bytes]) -> _Queue:
    queue = _Queue(iter(requests))
    for connection in connections:
        connection.work(queue)
    await asyncio.wait_for(queue.done.wait(), PATIENCE)
    return queue


def _outcome(
    queue: _Queue, seconds: float, server: float, own: float, expected: dict[str, Expected]
) -> Outcome:
    answers: dict[str, int] = {}
    accepted = refused = 0
    for answer in queue.answers:
        status = answer[9:12].decode()
        answers[status] = answers.get(status, 0) + 1
        if status == "200":
            receipt = json.loads(answer.partition(b"\r\n\r\n")[2])
            accepted += receipt["accepted"]
            refused += receipt["duplicates"] + receipt["conflicts"]
    cuts = statistics.quantiles(queue.seconds, n=100)
    return Outcome(seconds, cuts[49], cuts[98], server, own, answers, accepted, refused, expected)


def generator() -> ProcessPoolExecutor:
    """Return the process that makes load; `measure` is for it to run."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))
