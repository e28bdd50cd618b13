"""An aggregator that gives canned answers over real HTTP."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def problem(status: int, code: str, detail: str) -> dict[str, Any]:
    """Return a problem document."""
    body = {"type": "about:blank", "title": code, "status": status, "detail": detail}
    return body | {"code": code, "retryable": status in (429, 503)}


class CannedAggregator:
    """Answers each request target with what a test put there; others with a problem.

    Attributes:
        url: where it listens.
        requests: the targets asked for so far, in order.
        headers: those of the latest request.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.headers: dict[str, str] = {}
        self._answers: dict[str, list[tuple[int, bytes, dict[str, str]]]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def answer(self, target: str, body: Any, status: int = 200, **headers: str) -> None:
        """Answer a target below /api/v1; what is put there later is answered later."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._answers.setdefault(f"/api/v1{target}", []).append((status, data, headers))

    def problem(self, target: str, status: int, code: str, detail: str, **more: Any) -> None:
        """Answer a target with a problem document."""
        self.answer(target, problem(status, code, detail) | more, status)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def next_answer(self, target: str) -> tuple[int, bytes, dict[str, str]]:
        """Return what a target gets now; the last answer is repeated."""
        known = self._answers.get(target)
        if known is None:
            body = problem(404, "not_found", f"nothing is known at {target}")
            return 404, json.dumps(body).encode(), {}
        return known.pop(0) if len(known) > 1 else known[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        canned = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                canned.requests.append(self.path)
                canned.headers = dict(self.headers)
                status, data, headers = canned.next_answer(self.path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
