"""A load generator for a process of its own: ready requests over connections that stay open.

It writes ready bytes into plain sockets, so that it takes little of the machine that it measures.
In a closed loop every connection sends its next request when it has its answer, which finds the
most that a server takes. In an open loop requests are due at moments that do not depend on the
answers; a request's time runs from when it was due, so that a server that stalls is charged for
all that it kept waiting.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
from tests.bench.processes import busy_seconds, cpu_seconds
from tests.bench.workload import Expected, Shape, build, warm_up

CONNECTIONS = 64
WARM_UP = 4 * CONNECTIONS
PATIENCE = 60.0
CHUNK = 1 << 18

built = lru_cache(maxsize=1)(build)


@dataclass(frozen=True)
class Target:
    """A server to load: its port and its process."""

    port: int
    pid: int


@dataclass(frozen=True)
class Outcome:
    """What one measurement saw of `requests` requests; times in seconds.

    Attributes:
        requests: how many were sent; each was answered as it should.
        seconds: from the first request to the last answer.
        latencies: the time to each answer.
        server_cpu: processor time of the server.
        load_cpu: processor time of the load generator.
        other_cpu: processor time of everything else on the machine; noise, if it is much.
    """

    requests: int
    seconds: float
    latencies: list[float] = field(repr=False)
    server_cpu: float
    load_cpu: float
    other_cpu: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    def quantile(self, share: float) -> float:
        """Return the time within which a share of the answers came, in whole hundredths."""
        return statistics.quantiles(self.latencies, n=100, method="inclusive")[int(share * 100) - 1]


class Unexpected(Exception):
    """A server answered a request otherwise than it had to."""


class Wanted(NamedTuple):
    """What an answer has to be: how it begins and how it ends."""

    tail: bytes
    head: bytes = b"HTTP/1.1 200 "


class Connection:
    """A connection, the request that it is sending and the answer that it is receiving."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._unsent = memoryview(b"")
        self._answer = b""
        self.started = 0.0

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def send(self, request: bytes) -> bool:
        """Begin to send a request; says whether all of it is on its way."""
        self._unsent = memoryview(request)
        return self.go_on()

    def go_on(self) -> bool:
        """Send what there is room for; says whether that was the rest."""
        with contextlib.suppress(BlockingIOError):
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        return not self._unsent

    def received(self, wanted: Wanted) -> bool:
        """Take what has arrived; says whether an answer is whole.

        Raises:
            Unexpected: if it is not the wanted one.
        """
        data = self._answer + self._socket.recv(CHUNK)
        if data.endswith(wanted.tail) and data.startswith(wanted.head):
            self._answer = b""
            return True
        if data == self._answer or _is_whole(data):
            raise Unexpected(data.decode(errors="replace") or "the connection was closed")
        self._answer = data
        return False


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return bool(end) and len(body) >= int(length or 0)


class Load:
    """Connections to a server, for as many measurements as are wanted.

    Args:
        port: of the server.
        connections: how many; each is opened when it is first needed.
        at_once: how many of them may wait for an answer at the same time.
    """

    def __init__(
        self, port: int, connections: int = CONNECTIONS, at_once: int = CONNECTIONS
    ) -> None:
        self._port = port
        self._most = connections
        self._at_once = min(at_once, connections)
        # Made first: select takes only small descriptors.
        self._poller = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._idle: deque[Connection] = deque()

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()
        self._poller.close()

    def drive(
        self, requests: Sequence[bytes], wanted: Wanted, due: Sequence[float] | None = None
    ) -> list[float]:
        """Send requests and return the seconds to each answer.

        Args:
            requests: in their order; a connection carries one at a time.
            wanted: what every answer is.
            due: when each is due, in seconds from now, ascending; without it, as soon as a
                connection is free.

        Raises:
            Unexpected: if an answer is another.
            TimeoutError: if nothing arrives for a minute.
        """
        clock, start, sent = time.perf_counter, time.perf_counter(), 0
        latencies: list[float] = []
        while len(latencies) < len(requests):
            now = clock()
            bound = min(len(requests), len(latencies) + self._at_once)
            while sent < bound and (due is None or start + due[sent] <= now):
                connection = self._free()
                connection.started = now if due is None else start + due[sent]
                if not connection.send(requests[sent]):
                    self._poller.modify(connection, select.EPOLLIN | select.EPOLLOUT)
                sent += 1
            pause = start + due[sent] - now if due and sent < bound else None
            for connection in self._answered(pause, wanted):
                latencies.append(clock() - connection.started)
                self._idle.append(connection)
        return latencies

    def drive_lanes(self, requests: Sequence[bytes], wanted: Wanted) -> list[float]:
        """Send requests as ranks do, each over its own connection, and return the seconds to each.

        Args:
            requests: in their order; each goes over the connection that its number stands for.
            wanted: what every answer is.

        Raises:
            Unexpected: if an answer is another.
            TimeoutError: if nothing arrives for a minute.
        """
        lanes: dict[int, Iterator[bytes]] = {}
        latencies: list[float] = []
        for number in range(self._most):
            connection = self._free()
            lanes[connection.fileno()] = iter(requests[number :: self._most])
            self._send_next(connection, lanes)
        while len(latencies) < len(requests):
            for connection in self._answered(None, wanted):
                latencies.append(time.perf_counter() - connection.started)
                self._send_next(connection, lanes)
        return latencies

    def _send_next(self, connection: Connection, lanes: dict[int, Iterator[bytes]]) -> None:
        request = next(lanes[connection.fileno()], None)
        if request is None:
            self._idle.append(connection)
            return
        connection.started = time.perf_counter()
        if not connection.send(request):
            self._poller.modify(connection, select.EPOLLIN | select.EPOLLOUT)

    def _free(self) -> Connection:
        """Return a new connection while there are too few, or else the one that rested longest."""
        if len(self._connections) == self._most:
            return self._idle.popleft()
        connection = Connection(self._port)
        self._connections[connection.fileno()] = connection
        self._poller.register(connection, select.EPOLLIN)
        return connection

    def _answered(self, pause: float | None, wanted: Wanted) -> Iterator[Connection]:
        """Wait for answers, at most as long as given, and yield whose are whole."""
        # What epoll waits for itself is rounded up to a millisecond; select is not.
        patience = PATIENCE if pause is None else max(0.0, pause)
        if not select.select([self._poller], [], [], patience)[0] and pause is None:
            raise TimeoutError(f"no answer within {PATIENCE:.0f} s")
        for number, events in self._poller.poll(0):
            connection = self._connections[number]
            if events & select.EPOLLOUT and connection.go_on():
                self._poller.modify(number, select.EPOLLIN)
            if events & ~select.EPOLLOUT and connection.received(wanted):
                yield connection


def receipt(accepted: int) -> Wanted:
    """Return the answer to a report of so many new partials."""
    return Wanted(b'{"accepted":%d,"duplicates":0,"conflicts":0}' % accepted)


def measure(
    load: Load, pid: int, requests: Sequence[bytes], wanted: Wanted, rate: float | None = None
) -> Outcome:
    """Load a server and see what it takes.

    Args:
        load: connections to it.
        pid: its process.
        requests: what to send.
        wanted: what every answer is.
        rate: requests per second of an open loop, at random moments; without it, a closed one.
    """
    due = rate and _moments(rate, len(requests))
    return measured(pid, len(requests), lambda: load.drive(requests, wanted, due))


def measured(pid: int, count: int, drive: Callable[[], list[float]]) -> Outcome:
    """Run what sends `count` requests to a server and returns the seconds to each answer."""
    gc.collect()
    gc.disable()
    started, before = time.perf_counter(), _cpu(pid)
    latencies = drive()
    seconds = time.perf_counter() - started
    server, own, busy = _cpu(pid) - before
    gc.enable()
    return Outcome(count, seconds, latencies, server, own, max(0.0, busy - server - own))


def by_rank(target: Target, shape: Shape, run: str) -> Outcome:
    """Send a workload as fast as it goes, each rank over its own connection."""
    requests, wanted = built(shape, run).requests, receipt(shape.batch)
    with Load(target.port) as load:
        load.drive(warm_up(WARM_UP), receipt(0))
        return measured(target.pid, len(requests), lambda: load.drive_lanes(requests, wanted))


def _cpu(pid: int) -> np.ndarray:
    """Return the processor time of a server, of this process and of the whole machine."""
    return np.array([cpu_seconds(pid), time.process_time(), busy_seconds()])


def _moments(rate: float, count: int) -> list[float]:
    """Return when requests are due that come independently of each other."""
    moments: list[float] = np.random.default_rng(3).exponential(1 / rate, count).cumsum().tolist()
    return moments


def most_then_half(target: Target, shape: Shape, run: str) -> tuple[Outcome, Outcome]:
    """Send a workload: the first half as fast as it goes, the other at half that rate.

    This and what follows is for the generator's process, which keeps the newest workload.
    """
    requests, wanted = built(shape, run).requests, receipt(shape.batch)
    middle = len(requests) // 2
    with Load(target.port) as load:
        load.drive(warm_up(WARM_UP), receipt(0))
        most = measure(load, target.pid, requests[:middle], wanted)
        half = measure(load, target.pid, requests[middle:], wanted, most.rate / 2)
    return most, half


def most(target: Target, shape: Shape, run: str, count: int) -> Outcome:
    """Send the first requests of a workload as fast as it goes."""
    with Load(target.port) as load:
        load.drive(warm_up(WARM_UP), receipt(0))
        return measure(load, target.pid, built(shape, run).requests[:count], receipt(shape.batch))


def expected(shape: Shape, run: str) -> dict[str, Expected]:
    """Return what a workload adds up to."""
    return built(shape, run).expected


def generator(core: int | None = None) -> ProcessPoolExecutor:
    """Return the process that makes load, on one core if it is given."""
    return ProcessPoolExecutor(1, get_context("spawn"), _keep_to, (core,))


def _keep_to(core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})
