"""Every error has one status and one document, and what is unforeseen tells nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from starlette.exceptions import HTTPException

from rankfold import errors
from rankfold.errors import (
    ConfigurationError,
    FieldError,
    Inconsistent,
    Overloaded,
    RankfoldError,
    StoreUnavailable,
    Unauthenticated,
    Unreachable,
)
from rankfold_service.http.problems import STATUS, problem_of, to_json


def descendants(error: type[RankfoldError]) -> Iterator[type[RankfoldError]]:
    """Yield a class and all that derive from it."""
    yield error
    for child in error.__subclasses__():
        yield from descendants(child)


# These stop a start or a command; no request meets them.
NOT_OVER_HTTP = {RankfoldError, Unreachable, *descendants(ConfigurationError)}


def made(error: type[RankfoldError]) -> RankfoldError:
    """Return an instance of an error."""
    if issubclass(error, Inconsistent):
        return error([FieldError("/a", "is wrong")])
    return error("why")


def test_every_error_that_reaches_a_caller_has_a_status() -> None:
    """A new error cannot be forgotten: it has a row, or is listed as one that stays inside."""
    known = {e for e in descendants(RankfoldError) if e.__module__ == errors.__name__}
    assert known - NOT_OVER_HTTP == set(STATUS)


@pytest.mark.parametrize("error", STATUS, ids=lambda error: error.__name__)
def test_problem_tells_the_error(error: type[RankfoldError]) -> None:
    """The document has the error's own code, and says whether to send again."""
    document = problem_of(made(error)).document
    assert document["status"] == STATUS[error]
    assert document["type"] == f"urn:rankfold:problem:{error.code}"
    assert (document["code"], document["retryable"]) == (error.code, error.retryable)
    assert document["title"]
    assert document["retryable"] == (document["status"] in (429, 503))


def test_problem_names_each_fault() -> None:
    """An inconsistent request is told where, by JSON pointer."""
    assert problem_of(made(Inconsistent)).document["errors"] == [
        {"pointer": "/a", "reason": "is wrong"}
    ]


def test_problem_says_when_to_come_back() -> None:
    """What is retryable says after how many whole seconds, at least one."""
    assert problem_of(Overloaded("much", 2.2)).headers == {"Retry-After": "3"}
    assert problem_of(StoreUnavailable("down", 0)).headers == {"Retry-After": "1"}


def test_problem_asks_for_a_token() -> None:
    """Who is not known is told how to say who they are."""
    assert "Bearer" in problem_of(Unauthenticated("who?")).headers["WWW-Authenticate"]


@pytest.mark.parametrize("error", [ValueError("secret"), ConfigurationError("secret")])
def test_problem_hides_what_is_unforeseen(error: Exception) -> None:
    """What went wrong inside stays inside."""
    document = problem_of(error).document
    assert (document["status"], document["code"]) == (500, "internal")
    assert "secret" not in json.dumps(document)


def test_problem_keeps_the_frameworks_headers() -> None:
    """A method that is not known is told which are."""
    problem = problem_of(HTTPException(405, headers={"Allow": "POST"}))
    assert problem.document["code"] == "method_not_allowed"
    assert problem.headers == {"Allow": "POST"}
    assert problem_of(HTTPException(418)).document["code"] == "bad_request"


def test_to_json_is_json() -> None:
    """No NaN, integers exactly, and a lone surrogate does not break who reads it."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(float("nan"))
    assert to_json({"a": 2**70, "b": "\ud800ü"}) == b'{"a":%d,"b":"?\xc3\xbc"}' % 2**70
