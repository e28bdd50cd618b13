"""Errors to problem documents (RFC 9457): the one place that knows which status an error has."""

from __future__ import annotations

import json
import math
from http import HTTPStatus
from typing import Any, NamedTuple

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from rankfold.answers import FieldErrorAnswer, ProblemAnswer
from rankfold.errors import (
    FieldError,
    Forbidden,
    Inconsistent,
    MalformedBody,
    NotFound,
    Overloaded,
    RankfoldError,
    RequestError,
    StoreDamaged,
    StoreUnavailable,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnsupportedMedia,
)
from rankfold.wire import UNSERVED, field_error

MEDIA_TYPE = "application/problem+json"

STATUS: dict[type[RankfoldError], int] = {
    RequestError: 400,
    MalformedBody: 400,
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    TooLarge: 413,
    UnsupportedMedia: 415,
    Inconsistent: 422,
    Overloaded: 429,
    Unavailable: 503,
    StoreUnavailable: 503,
    StoreDamaged: 503,
}

# What the web framework and the protocol answer by themselves, in our words.
_OF_STATUS = {404: "not_found", 405: "method_not_allowed", 431: "too_large"}
_DETAILS = {404: f"{UNSERVED}; /docs shows the paths there are"}

_TITLES = {
    "bad_request": "The request cannot be taken",
    "malformed_body": "The body is not JSON",
    "unauthenticated": "A token is needed",
    "forbidden": "The token does not reach that far",
    "not_found": "Nothing of that name is known",
    "method_not_allowed": "The method is not known here",
    "too_large": "Over a limit",
    "unsupported_media": "The content type or encoding is not known",
    "inconsistent": "Fields are missing, wrong or contradict each other",
    "overloaded": "Too much at once; send it again later",
    "unavailable": "Not now; send it again later",
    "store_unavailable": "The store does not answer; send it again later",
    "store_damaged": "What the store has of this is damaged",
    "internal": "The aggregator failed",
}


class Problem(NamedTuple):
    """A problem document and the headers that go with it."""

    document: ProblemAnswer
    headers: dict[str, str]

    def response(self) -> Response:
        """Return it as a response."""
        return Response(
            to_json(self.document), self.document["status"], self.headers, media_type=MEDIA_TYPE
        )


def to_json(answer: Any) -> bytes:
    """Return an answer as JSON; NaN is refused, and a lone surrogate becomes a question mark."""
    text = json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def problem_of(error: Exception) -> Problem:
    """Return what a caller is told of an error; of unforeseen ones, nothing but that."""
    match error:
        case RankfoldError():
            return _of_ours(error)
        case RequestValidationError():
            return _of_ours(_query_fault(error))
        case HTTPException():
            return _of_framework(error)
        case _:
            return _problem(500, RankfoldError.code, "The failure is in the aggregator's log.")


def _of_ours(error: RankfoldError) -> Problem:
    status = next((STATUS[cls] for cls in type(error).__mro__ if cls in STATUS), 500)
    if status == 500:
        return _problem(500, RankfoldError.code, "The failure is in the aggregator's log.")
    problem = _problem(status, error.code, str(error), retryable=error.retryable)
    if isinstance(error, Inconsistent):
        problem.document["errors"] = [_field(*fault) for fault in error.errors]
    if isinstance(error, Unavailable):
        problem.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if isinstance(error, Unauthenticated):
        problem.headers["WWW-Authenticate"] = 'Bearer realm="rankfold"'
    return problem


def _of_framework(error: HTTPException) -> Problem:
    code = _OF_STATUS.get(error.status_code, "bad_request")
    detail = _DETAILS.get(error.status_code, str(error.detail))
    problem = _problem(error.status_code, code, detail)
    problem.headers.update(error.headers or {})
    return problem


def _query_fault(error: RequestValidationError) -> Inconsistent:
    """Return a query's faults; a parameter that may be of two types fails twice but once here."""
    found: dict[str, FieldError] = {}
    for fault in error.errors():
        place = field_error(_plain(fault), *fault["loc"][:2])
        found.setdefault(place.pointer, place)
    return Inconsistent(list(found.values()))


def _plain(fault: dict[str, Any]) -> str:
    """Return a fault of the framework in our words."""
    if fault["type"] == "extra_forbidden":
        return "is not known"
    message: str = fault["msg"]
    return message.replace("Input should be", "must be").replace("Value error, ", "")


def _field(pointer: str, reason: str) -> FieldErrorAnswer:
    return {"pointer": pointer, "reason": reason}


def _problem(status: int, code: str, detail: str, *, retryable: bool = False) -> Problem:
    document: ProblemAnswer = {
        "type": f"urn:rankfold:problem:{code}",
        "title": _TITLES.get(code) or HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "retryable": retryable,
    }
    return Problem(document, {})


async def answer_problem(request: Request, error: Exception) -> Response:
    """Answer an error that a route raised; what is unforeseen goes on to who logs it."""
    problem = problem_of(error)
    if problem.document["status"] == HTTPStatus.METHOD_NOT_ALLOWED:
        problem.headers["Allow"] = ", ".join(_methods(request))
    note_problem(request.scope, problem)
    return problem.response()


def _methods(request: Request) -> list[str]:
    """Return the methods of every route of a path; the framework names those of the first."""
    routes = [r for r in request.app.routes if r.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in routes for method in route.methods})


def note_problem(scope: Any, problem: Problem) -> None:
    """Leave a problem for who logs the request, and tell the caller the request's id."""
    state = scope.setdefault("state", {})
    state["problem"] = problem
    if "request_id" in state:
        problem.document["request_id"] = state["request_id"]
