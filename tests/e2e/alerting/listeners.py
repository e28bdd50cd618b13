"""Two small HTTP servers: who is woken by alerts, and a scraper's view of an older Prometheus."""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx

TEXT = "text/plain;version=0.0.4"


class Bearing(ThreadingHTTPServer):
    """Bears that callers hang up: they have a timeout of their own."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong, unless the connection did."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Listener:
    """An HTTP server on a free port, in a thread of its own."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = Bearing(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers without a word on standard error."""

    protocol_version = "HTTP/1.1"

    def answer(self, status: int, content_type: str, body: bytes) -> None:
        """Send an answer."""
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Notification(NamedTuple):
    """What Alertmanager sent, and when it came, in seconds since the epoch."""

    at: float
    body: dict[str, Any]


class Receiver(Listener):
    """Takes what Alertmanager sends to webhooks."""

    def __init__(self) -> None:
        self.notifications: list[Notification] = []
        received = self.notifications

        class Take(Handler):
            def do_POST(self) -> None:
                at = time.time()
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.append(Notification(at, json.loads(body)))
                self.answer(200, "text/plain", b"")

        super().__init__(Take)


class TextOnly(Listener):
    """Passes scrapes on as if the scraper knew the text format only.

    Args:
        url: of the aggregator.
    """

    def __init__(self, url: str) -> None:
        class Pass(Handler):
            def do_GET(self) -> None:
                try:
                    scraped = httpx.get(url + self.path, headers={"Accept": TEXT}, timeout=1)
                except httpx.TransportError as error:
                    self.answer(502, "text/plain", str(error).encode())
                    return
                self.answer(scraped.status_code, scraped.headers["Content-Type"], scraped.content)

        super().__init__(Pass)
