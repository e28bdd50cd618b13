"""uvicorn's HTTP protocol, bounded and orderly, with a way past its tasks for reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import httptools
from starlette.exceptions import HTTPException
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle as Cycle

from rankfold_service.http.lane import Exchange, is_report
from rankfold_service.http.plain import Header
from rankfold_service.http.problems import problem_of

# The parser gathers an unfinished line by copying, so that a long one costs its length squared.
MOST_HEAD = 512 * 1024
HEAD_SECONDS = 20.0

# For how long a body that is not there yet may still come whole; many senders write it by itself.
WHOLE_SECONDS = 0.05

# So many requests of one connection may wait for their answers; whoever sends more reads none.
MOST_PIPELINED = 500

# What is answered where there is no request, or one too many.
_TOO_LARGE = HTTPException(431, f"the request line and headers have more than {MOST_HEAD:,} bytes")
_TOO_MANY = HTTPException(
    400, f"more than {MOST_PIPELINED} requests wait on this connection: read their answers first"
)
_NO_REQUEST = HTTPException(400, "this is no request of HTTP/1.1, or its method is not known")


class OrderlyProtocol(HttpToolsProtocol):
    """Answers in order whatever comes, and stays with HTTP/1.1 where a client offers more.

    The parser takes the end of a head that offers another protocol for the end of HTTP. A server
    may leave such an offer aside, so the head is given to it a second time, without the offer.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_body = False
        self._without_offer: bytes | None = None
        self._refusal: HTTPException | None = None
        self._answering: Cycle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Let nothing more be written; uvicorn tells only the request that came last.

        Nor does it forget how long an idle connection is kept where a client reset it, so that each
        would take memory for over a minute.
        """
        if self._answering is not None:
            self._answering.disconnected = True
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def _start_asgi_task(self, cycle: Cycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        """Take requests, as far as what came consists of them."""
        if self._refusal is not None:
            return
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse(_TOO_MANY if self._too_many else _NO_REQUEST)

    def _parse(self, rest: bytes | memoryview) -> None:
        while True:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as offer:
                rest = memoryview(rest)[offer.args[0] :]
            else:
                return
            head, self._without_offer = self._without_offer, None
            if head is None:
                raise httptools.HttpParserError("a tunnel was asked for")
            self.parser.feed_data(head)

    def on_headers_complete(self) -> None:
        """Begin with a request, unless its head comes a second time."""
        if self.parser.should_upgrade():
            if self.parser.get_method() != b"CONNECT":
                self._without_offer = self._plain_head()
            return
        if self._too_many:
            raise httptools.HttpParserError  # ends what is parsed of this piece
        super().on_headers_complete()
        self._in_body = True

    def on_message_complete(self) -> None:
        """End a request, unless its head comes a second time."""
        if not self.parser.should_upgrade():
            self._in_body = False
            super().on_message_complete()

    def _plain_head(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _refuse(self, refusal: HTTPException) -> None:
        """Take nothing more, and answer that once every request before it is answered."""
        self._refusal, newest = refusal, self._newest
        if self._in_body and self.pipeline and self.pipeline[0][0] is newest:
            self.pipeline.popleft()  # it can never be whole
        elif self._in_body or newest is None or newest.response_complete:
            self._end()

    def on_response_complete(self) -> None:
        """Go on with the next request, or end where none can follow."""
        if self._refusal is None or self.pipeline:
            super().on_response_complete()
        else:
            self._end()

    def _end(self) -> None:
        """Write the refusal, unless the request that it is about has an answer already."""
        newest = self._newest
        answered = self._in_body and newest is not None and newest.response_started
        if self._refusal is not None and not answered and not self.transport.is_closing():
            self.transport.write(self._refused(self._refusal))
        if newest is not None:
            newest.disconnected = True
            newest.message_event.set()
        self.transport.close()

    @property
    def _too_many(self) -> bool:
        return len(self.pipeline) >= MOST_PIPELINED

    @property
    def _newest(self) -> Cycle | None:
        """The request that came last; uvicorn's attribute says that there always is one."""
        return self.cycle

    def _refused(self, refusal: HTTPException) -> bytes:
        response = problem_of(refusal).response()
        headers = [
            *self.server_state.default_headers,
            *response.raw_headers,
            (b"connection", b"close"),
        ]
        lines = (b"%b: %b\r\n" % header for header in headers)
        return b"".join([STATUS_LINE[response.status_code], *lines, b"\r\n", bytes(response.body)])


class BoundedProtocol(OrderlyProtocol):
    """Ends connections whose request line and headers are too long or too slow to come.

    While a request is being answered, nobody waits for the head of the next.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head = 0
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
                self._refuse(_TOO_LARGE)
        super().data_received(data)
        if self._refusal is not None:
            self._head_came()
        elif self._late is None:
            self._await_next()

    def on_response_complete(self) -> None:
        """Give a request that began to come before this answer its time to go on."""
        super().on_response_complete()
        self._await_next()

    def on_message_begin(self) -> None:
        """Give a further request its time to come, once it turns out that it did not yet."""
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        """Stop the time; what follows is a body."""
        self._head_came()
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Begin to count the next head."""
        self._head = 0
        super().on_message_complete()

    def _await_next(self) -> None:
        """Wait for the rest of a head, unless a request before it is still to be answered."""
        answered = self._newest is None or self._newest.response_complete
        if self._in_head and answered and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self._await_head()

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
            _done_with(cycle)
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
        _done_with(cycle)


def _done_with(cycle: Cycle) -> None:
    """Let a request no longer hold its connection, which holds it: only a collector frees both."""
    cycle.on_response = _nothing


def _nothing() -> None:
    """Do what follows an answer that is over."""


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
            _done_with(self._release(self._held))
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
            self._held = self._answering = cycle
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
