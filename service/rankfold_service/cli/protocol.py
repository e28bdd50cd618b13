"""uvicorn's HTTP protocol with two bounds that it lacks, and a way past its tasks for reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle as Cycle

from rankfold_service.http.lane import Exchange, is_report
from rankfold_service.http.plain import Header

# The parser gathers an unfinished line by copying, so that a long one costs its length squared.
MOST_HEAD = 512 * 1024
HEAD_SECONDS = 20.0

# For how long a body that is not there yet may still come whole; many senders write it by itself.
WHOLE_SECONDS = 0.05

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class BoundedProtocol(HttpToolsProtocol):
    """Ends connections whose request line and headers are too long or too slow to come."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head = 0
        self._in_body = False
        self._in_head = True
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the first request its time to come."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time."""
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass on what belongs to a head that is short enough, and every body."""
        if not self._in_body:
            self._head += len(data)
            if self._head > MOST_HEAD:
                self.transport.write(_TOO_LARGE)
                self.transport.close()
                return
        super().data_received(data)
        if self._in_head and self._late is None and not self.transport.is_closing():
            self._await_head()

    def on_message_begin(self) -> None:
        """Give a further request its time to come, once it turns out that it did not yet."""
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        """Stop the time; what follows is a body."""
        self._head_came()
        self._in_head = False
        self._in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Begin to count the next head."""
        self._in_body, self._head = False, 0
        super().on_message_complete()

    def _await_head(self) -> None:
        self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _head_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class WholeRequest:
    """An `Exchange` over one of uvicorn's: a request that came whole, and the way back."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle

    @property
    def scope(self) -> Scope:
        """See `Exchange.scope`."""
        return self._cycle.scope  # type: ignore[return-value]

    @property
    def body(self) -> bytes:
        """See `Exchange.body`."""
        return bytes(self._cycle.body)

    def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """See `Exchange.answer`: what uvicorn does with two messages, in one write."""
        cycle = self._cycle
        if cycle.disconnected:
            return
        parts = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            parts += (name, b": ", value, b"\r\n")
        parts += (b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n", body)
        cycle.transport.write(b"".join(parts))
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


class ReportProtocol(BoundedProtocol):
    """Hands reports that come whole to who answers them; for everything else there is a task.

    Args:
        take: takes a report and answers it; False where there has to be a task after all.
    """

    def __init__(self, take: Callable[[Exchange], bool], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._take = take
        self._held: Cycle | None = None
        self._patience: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a report that did not come whole."""
        if self._held is not None:
            self._release(self._held)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; a report may be whole now."""
        super().data_received(data)
        self._go_on()

    def on_response_complete(self) -> None:
        """Go on with a request that waited for this answer; its body may be here already."""
        super().on_response_complete()
        if self._held is not None:
            self.loop.call_soon(self._go_on)

    def _start_asgi_task(self, cycle: Cycle, app: Any) -> None:
        """Hold a report back until it is known whether it comes whole."""
        if is_report(cycle.scope) and not cycle.waiting_for_100_continue:
            self._held = cycle
        else:
            super()._start_asgi_task(cycle, app)

    def _go_on(self) -> None:
        """Answer the report that is held back if it is whole, or wait a moment for the rest."""
        if self._held is None:
            return
        if not self._held.more_body:
            cycle = self._release(self._held)
            if not self._take(WholeRequest(cycle)):
                super()._start_asgi_task(cycle, self.app)
        elif self.flow.read_paused:  # large; a task reads the rest
            self._give_up()
        elif self._patience is None:
            self._patience = self.loop.call_later(WHOLE_SECONDS, self._give_up)

    def _give_up(self) -> None:
        """Let a task gather a report that does not come whole."""
        if self._held is not None:
            super()._start_asgi_task(self._release(self._held), self.app)

    def _release(self, held: Cycle) -> Cycle:
        """Return what was held back, and stop its time."""
        self._held = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        return held
