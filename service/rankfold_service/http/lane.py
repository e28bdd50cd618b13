"""The fast lane: reports go past the framework's layers, whole ones past tasks and messages too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from rankfold.wire import REPORT_PATH, Receipt
from rankfold_service.http.body import by_name
from rankfold_service.http.plain import Header, ReportEndpoint, receipt_answer
from rankfold_service.http.problems import note_problem, problem_of
from rankfold_service.http.watch import Watch, log_failure, mark


class Exchange(Protocol):
    """A request of which everything came, and the way back to who sent it."""

    @property
    def scope(self) -> Scope:
        """What the request is; see the ASGI specification."""
        ...

    @property
    def body(self) -> bytes:
        """Its whole body, as it came."""
        ...

    def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Answer it; nothing happens where the client went away."""
        ...


class FastLane:
    """Takes reports past the framework's layers, which cost more than a report does.

    Args:
        api: takes everything else.
        reports: takes reports.
        watch: notes them; around `reports`.
    """

    def __init__(self, api: ASGIApp, reports: ReportEndpoint, watch: Watch) -> None:
        self._api = api
        self._reports = reports
        self._watch = watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to who takes it."""
        await (self._watch if is_report(scope) else self._api)(scope, receive, send)

    def take(self, exchange: Exchange) -> bool:
        """Take a whole report and answer it, as a call would.

        Returns:
            False, and nothing was done, where it has to be called for, because that takes long.
        """
        scope = exchange.scope
        scope["route"] = self._reports
        started = self._watch.begin(scope)
        answer = partial(self._answer, exchange, started)
        return self._reports.take(by_name(scope["headers"]), exchange.body, answer)

    def _answer(self, exchange: Exchange, started: float, outcome: Receipt | Exception) -> None:
        scope = exchange.scope
        status = 200
        if isinstance(outcome, Receipt):
            headers, body = receipt_answer(outcome)
        else:
            status, headers, body = _refusal(scope, outcome)
        exchange.answer(status, [*headers, mark(scope)], body)
        self._watch.note(scope, status, started)


def is_report(scope: Mapping[str, object]) -> bool:
    """Whether a request is one that the fast lane takes."""
    return scope["type"] == "http" and scope["path"] == REPORT_PATH and scope["method"] == "POST"


def _refusal(scope: Scope, error: Exception) -> tuple[int, list[Header], bytes]:
    problem = problem_of(error)
    if problem.document["status"] == 500:
        log_failure(scope, error)
    note_problem(scope, problem)
    response = problem.response()
    return response.status_code, response.raw_headers, bytes(response.body)
