"""Watches every request: gives it an id, times it, logs what went wrong, hides why from callers."""

from __future__ import annotations

import itertools
import logging
import re
import time
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rankfold_service.http.problems import note_problem, problem_of
from rankfold_service.telemetry import Telemetry

_log = logging.getLogger("rankfold.http")

# Unlike those of any other process, and cheap: one is made for every report.
_PROCESS = uuid.uuid4().hex[:16]
_numbers = itertools.count()

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
CLIENT_GONE = 499  # what proxies write where a client left before its answer


class Throttle:
    """Lets one line per key and period through, and counts those that it keeps back.

    Args:
        period: in seconds.
        clock: monotonic, in seconds.
    """

    def __init__(self, period: float, clock: Callable[[], float]) -> None:
        self._period = period
        self._clock = clock
        self._next: dict[Any, float] = {}
        self._held: dict[Any, int] = {}

    def pass_(self, key: Any) -> int | None:
        """Return how many were held back since the last one, or None to hold this one back."""
        now = self._clock()
        if now < self._next.get(key, now):
            self._held[key] = self._held.get(key, 0) + 1
            return None
        self._next[key] = now + self._period
        return self._held.pop(key, 0)


class Watch:
    """The outermost layer of the application.

    A request that is answered well is logged at debug, for there are thousands a second. One
    that is refused is a warning, at most one line a second for each route and status. Whoever
    reads what is not there is only told so, at most once a minute: they may ask every second until
    it is.
    """

    def __init__(
        self,
        app: ASGIApp,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._app = app
        self._telemetry = telemetry
        self._clock = clock
        self._refused = Throttle(1.0, clock)
        self._absent = Throttle(60.0, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, whatever happens."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = self.begin(scope)
        status = 0

        async def send_watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message.setdefault("headers", []).append(mark(scope))
            await send(message)

        try:
            await self._app(scope, receive, send_watched)
        except ClientDisconnect:
            status = CLIENT_GONE
        except Exception as error:
            log_failure(scope, error)
            if status:  # too late for an answer: the server has to cut the connection
                raise
            problem = problem_of(error)
            note_problem(scope, problem)
            await problem.response()(scope, receive, send_watched)
        finally:
            self.note(scope, status or 500, started)

    def begin(self, scope: Scope) -> float:
        """Give a request its id; return when it began."""
        scope.setdefault("state", {})["request_id"] = _request_id(scope)
        return self._clock()

    def note(self, scope: Scope, status: int, started: float) -> None:
        """Count and log a request that was answered."""
        route, seconds = _template(scope), self._clock() - started
        self._telemetry.observe_request(route, status, seconds)
        if status >= 400:
            absent = status == HTTPStatus.NOT_FOUND and scope["method"] in ("GET", "HEAD")
            held = (self._absent if absent else self._refused).pass_((route, status))
            if held is not None:
                level = logging.INFO if absent else logging.WARNING
                _log.log(level, "request refused", extra=_refusal(scope, status, seconds, held))
        elif _log.isEnabledFor(logging.DEBUG):
            _log.debug("request answered", extra=_facts(scope, status, seconds))


def mark(scope: Scope) -> tuple[bytes, bytes]:
    """Return the header that tells a caller the request's id."""
    return b"x-request-id", scope["state"]["request_id"].encode()


def log_failure(scope: Scope, error: Exception) -> None:
    """Log what nobody foresaw, with the request that brought it out."""
    facts = {"request_id": scope["state"]["request_id"], "route": _template(scope)}
    _log.error("request failed", exc_info=error, extra=facts)


def _request_id(scope: Scope) -> str:
    """Return the caller's id where it is harmless in a log, or else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            given: str = value.decode("latin-1")
            if _SANE_ID.fullmatch(given):
                return given
    return f"{_PROCESS}-{next(_numbers):x}"


def _template(scope: Scope) -> str:
    """Return the route's path with its parameters unfilled: paths themselves are endless."""
    return getattr(scope.get("route"), "path", "unmatched")


def _facts(scope: Scope, status: int, seconds: float) -> dict[str, Any]:
    return {
        "request_id": scope["state"]["request_id"],
        "method": scope["method"],
        "path": scope["path"],
        "route": _template(scope),
        "status": status,
        "seconds": round(seconds, 6),
    }


def _refusal(scope: Scope, status: int, seconds: float, held: int) -> dict[str, Any]:
    facts = _facts(scope, status, seconds)
    problem = scope["state"].get("problem")
    if problem is not None:
        facts |= {"code": problem.document["code"], "detail": problem.document["detail"]}
    return facts | ({"also_held_back": held} if held else {})
