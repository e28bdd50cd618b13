"""How long uvicorn, with our protocol, waits for a request's head, on real connections."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

import pytest
import uvicorn

from rankfold.wire import REPORT_PATH
from rankfold_service.cli import protocol
from rankfold_service.cli.protocol import ReportProtocol
from rankfold_service.http.lane import Exchange

WHOLE = b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n"
HALF, REST = WHOLE[:20], WHOLE[20:]
SHORT, LONG = 0.1, 600.0


class Slow:
    """A server whose one answer comes when it may.

    Attributes:
        address: where it listens.
        may: what an answer waits for; a report waits for nothing.
        protocols: of the connections that something still holds.
    """

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        self.may = threading.Event()
        self.protocols: WeakSet[ReportProtocol] = WeakSet()
        config = uvicorn.Config(
            self._app,
            http=self._protocol,  # type: ignore[arg-type]
            interface="asgi3",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=600,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],))
        self._thread.start()

    def connect(self) -> socket.socket:
        """Return a connection."""
        return socket.create_connection(self.address, timeout=30)

    def end(self) -> None:
        """Answer what waits, and end."""
        self.may.set()
        self._server.should_exit = True
        self._thread.join()

    def _protocol(self, *args: Any, **kwargs: Any) -> ReportProtocol:
        made = ReportProtocol(_take, *args, **kwargs)
        self.protocols.add(made)
        return made

    async def _app(self, _scope: Any, _receive: Any, send: Any) -> None:
        await asyncio.to_thread(self.may.wait)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})


def _take(exchange: Exchange) -> bool:
    exchange.answer(204, [], b"")
    return True


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    """A server that gives a head little time."""
    monkeypatch.setattr(protocol, "HEAD_SECONDS", SHORT)
    server = Slow()
    yield server
    server.end()


def let_time_pass(server: Slow) -> None:
    """Wait until a head that began to come just now is given up."""
    with server.connect() as other:
        other.sendall(HALF)
        assert other.recv(100) == b""


@pytest.mark.parametrize("row", [1, 3])
def test_a_head_has_no_time_while_requests_before_it_are_answered(
    slow: Slow, monkeypatch: pytest.MonkeyPatch, row: int
) -> None:
    """However long that takes; it goes on afterwards, and is answered too."""
    with slow.connect() as connection:
        connection.sendall(WHOLE * row + HALF)
        let_time_pass(slow)
        connection.sendall(REST[:5])
        let_time_pass(slow)
        monkeypatch.setattr(protocol, "HEAD_SECONDS", LONG)
        slow.may.set()
        assert answered(connection, row)
        connection.sendall(REST[5:])
        assert answered(connection, 1)


def test_a_head_has_its_time_once_the_request_before_it_is_answered(slow: Slow) -> None:
    """It is not the longer one of a connection that is kept."""
    with slow.connect() as connection:
        connection.sendall(WHOLE + HALF)
        let_time_pass(slow)
        slow.may.set()
        assert answered(connection, 1)
        assert connection.recv(100) == b""


@pytest.mark.parametrize("before", [0, 1])
def test_a_head_that_is_the_only_thing_to_wait_for_has_its_time(slow: Slow, before: int) -> None:
    """The first of a connection, and a later one."""
    slow.may.set()
    with slow.connect() as connection:
        connection.sendall(WHOLE * before)
        assert answered(connection, before)
        connection.sendall(HALF)
        assert connection.recv(100) == b""


def test_a_connection_that_ended_leaves_nothing_for_the_collector(slow: Slow) -> None:
    """However its last request went: answered, by a task too, cut off, or without anybody."""
    top = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n" % REPORT_PATH.encode()
    last = (top + b"\r\n{}", top + b"connection: close\r\n\r\n{}", WHOLE, top + b"\r\n{", HALF)
    slow.may.set()
    gc.collect()
    gc.disable()
    try:
        for sent in last * 5:
            with slow.connect() as connection:
                connection.sendall(top + b"\r\n{}" + sent)
                assert answered(connection, 1 + (sent in last[:3]))
            with slow.connect() as connection:  # which is reset, for its answers are not read
                connection.sendall(top + b"\r\n{}" + sent)
                connection.recv(1)
        deadline = time.monotonic() + 30
        while slow.protocols and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not slow.protocols
    finally:
        gc.enable()


def answered(connection: socket.socket, count: int) -> bool:
    """Read so many answers; say whether they came whole."""
    data = b""
    while data.count(b"\r\n\r\n") < count:
        more = connection.recv(65536)
        if not more:
            return False
        data += more
    return data.count(b"HTTP/1.1 204 ") == count
