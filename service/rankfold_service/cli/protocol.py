"""uvicorn's HTTP protocol with two bounds that it lacks: on the head's size, and on its time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# The parser gathers an unfinished line by copying, so that a long one costs its length squared.
MOST_HEAD = 512 * 1024
HEAD_SECONDS = 20.0

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
