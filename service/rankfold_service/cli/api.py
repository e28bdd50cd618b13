"""Reads the HTTP API for the commands; the one place where its errors become ours."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter

from rankfold import __version__
from rankfold.answers import ProblemAnswer
from rankfold.errors import (
    ConfigurationError,
    FieldError,
    Inconsistent,
    MalformedBody,
    RankfoldError,
    RequestError,
    Unavailable,
    Unreachable,
)
from rankfold.urls import why_unreadable, without_user
from rankfold.wire import API_VERSION, UNSERVED
from rankfold_service.cli.deadline import Deadline
from rankfold_service.http.parse import check, parse_carefully
from rankfold_service.http.schemas import described

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
EXCHANGE_SECONDS = 120.0
MOST_BYTES = 256 * 1024 * 1024
MAX_PORT = 65535
LARGEST_PAGE = 1000  # the aggregator refuses larger ones
MOST_ITEMS = 1_000_000  # of a list that is kept in memory, or has names for cursors

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

Answer = dict[str, Any]
Query = Mapping[str, str | int | float | list[str] | None]


class Api:
    """One aggregator, as its readers see it.

    Attributes:
        url: where it is asked.
        address: the same as messages name it, without user and password.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self.address = without_user(self.url)
        headers = {"User-Agent": f"rankfold/{__version__}", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {_checked_token(token)}"
        self._http = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            # A proxy that the environment names cannot lead to this very machine.
            trust_env=_host(self.url) not in ("127.0.0.1", "::1", "localhost"),
        )
        self._deadline = Deadline()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()
        self._deadline.close()

    def get(self, path: str, shape: type, query: Query | None = None) -> Answer:
        """Return one answer.

        Args:
            path: below the API's root, each name percent-encoded.
            shape: the type of `rankfold.answers` that it has; it may have further members.
            query: its parameters; those that are None are left out.

        Raises:
            RequestError: the aggregator refused the request.
            Unavailable: it cannot answer now.
            Unreachable: nothing answered, or something that is no aggregator.
        """
        given = {name: value for name, value in (query or {}).items() if value is not None}
        url = f"{self.url}/api/v{API_VERSION}{path}"
        try:
            with (
                self._deadline.over(EXCHANGE_SECONDS),
                self._http.stream(
                    "GET", url, params=given, extensions={"trace": self._deadline.trace}
                ) as response,
            ):
                body = self._body(response)
        except (httpx.TimeoutException, TimeoutError) as error:
            raise Unreachable(f"{self.address} did not answer in time") from error
        except httpx.TransportError as error:
            raise Unreachable(f"no aggregator answers at {self.address} ({error})") from error
        except httpx.DecodingError as error:
            raise self._no_aggregator(f"the body is not compressed as it says: {error}") from error
        if not response.is_success:
            raise self._problem(response, body)
        try:
            return _text_only(body, _shaped(body, shape))
        except (MalformedBody, Inconsistent) as error:
            raise self._no_aggregator(str(error)) from error

    def each_page(
        self,
        path: str,
        shape: type,
        query: Query | None = None,
        *,
        limit: int | None = None,
        most: int | None = None,
    ) -> Iterator[Answer]:
        """Yield a list's pages: of `limit` items each, or as many as hold its first `most`.

        Raises:
            Unreachable: it has no end: a page leads nowhere or back, or there are too many names.
        """
        following: str | int | None = None
        seen = 0
        while most is None or most > 0:
            size = limit if most is None else min(most, LARGEST_PAGE)
            page = self.get(path, shape, {**(query or {}), "limit": size, "after": following})
            yield page
            if most is not None:
                most -= len(page["items"])
            before, following = following, page["next"]
            if following is None:
                return
            listed = len(page["items"]) + len(page.get("damaged", ()))
            seen += listed
            named = isinstance(following, str)
            if not (listed and _ascends(before, following)) or (named and seen > MOST_ITEMS):
                raise self._no_aggregator("its list has no end")

    def pages(
        self, path: str, shape: type, query: Query | None = None, most: int | None = None
    ) -> Answer:
        """Return all pages of a list joined into one, or the first `most` of its items.

        Raises:
            Unreachable: it is longer than what is kept in memory.
        """
        items: list[Any] = []
        following: str | int | None = None
        for page in self.each_page(path, shape, query, most=most):
            items += page["items"]
            following = page["next"]
            if len(items) > MOST_ITEMS:
                raise Unreachable(f"{self.address} lists more than {MOST_ITEMS:,} items")
        return {"items": items, "next": following}

    def _body(self, response: httpx.Response) -> bytes:
        """Read a body, of bounded length, whatever it unpacks to."""
        parts: list[bytes] = []
        size = 0
        for part in response.iter_bytes():
            size += len(part)
            if size > MOST_BYTES:
                raise self._no_aggregator(f"its answer has more than {MOST_BYTES:,} bytes")
            parts.append(part)
        return b"".join(parts)

    def _problem(self, response: httpx.Response, body: bytes) -> RankfoldError:
        """Return the error that a problem document tells of."""
        try:
            problem = _shaped(body, ProblemAnswer)
        except (MalformedBody, Inconsistent):
            return self._no_aggregator(f"status {response.status_code}")
        code, detail = problem["code"], problem["detail"]
        if detail.startswith(UNSERVED):
            return Unreachable(
                f"{self.address} is no Rankfold aggregator's address: it does not know the API"
            )
        kind = _BY_CODE.get(code, _by_status(response.status_code))
        if issubclass(kind, Inconsistent):
            errors = problem.get("errors") or [{"pointer": "", "reason": detail}]
            return kind([FieldError(fault["pointer"], fault["reason"]) for fault in errors])
        if issubclass(kind, Unavailable):
            return kind(detail, _seconds(response.headers.get("Retry-After")))
        return kind(detail)

    def _no_aggregator(self, why: str) -> Unreachable:
        return Unreachable(f"what answers at {self.address} is no aggregator: {why}")


def connect(args: argparse.Namespace) -> Api:
    """Return the aggregator that the options name."""
    return Api(args.url, args.token)


def runs_path(project: str) -> str:
    """Return where a project's runs are listed."""
    return f"/projects/{quote(project, safe='')}/runs"


def run_path(project: str, run: str, what: str = "") -> str:
    """Return where a run, or a part of what is known of it, is read."""
    return f"{runs_path(project)}/{quote(run, safe='')}" + (f"/{what}" if what else "")


def _host(url: str) -> str:
    shown = without_user(url)
    try:
        parsed = httpx.URL(url)
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{shown!r} is no URL: it is not UTF-8") from error
    except httpx.InvalidURL as error:
        why = why_unreadable(url, error)
        raise ConfigurationError(f"{shown!r} is no URL: {why}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigurationError(f"{shown!r} is no URL of an aggregator, such as http://host:9814")
    if parsed.port is not None and not 1 <= parsed.port <= MAX_PORT:
        raise ConfigurationError(f"{shown!r}: the port {parsed.port} is not from 1 to {MAX_PORT}")
    return parsed.host


def _checked_token(token: str) -> str:
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigurationError("a token has only visible ASCII characters and no spaces")
    return token


def _shaped(body: bytes, shape: type) -> Answer:
    """Return an answer, whatever it has beyond its shape.

    Raises:
        MalformedBody: it is no JSON, or has a number that no double holds.
        Inconsistent: it lacks something, or has it in another type.
    """
    answer: Answer = parse_carefully(body, _finite)
    check(answer, _adapter(shape), strict=True)
    return answer


def _text_only(body: bytes, answer: Answer) -> Answer:
    """Return an answer that can be written anywhere.

    Raises:
        MalformedBody: it has a lone surrogate, which is half a character and no text.
    """
    if _SURROGATE.search(body):
        try:
            json.dumps(answer, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise MalformedBody("the body has a lone surrogate in a text") from error
    return answer


def _ascends(before: str | int | None, following: str | int) -> bool:
    """Whether a cursor leads on: both are of one type, for each list has one shape."""
    return before is None or following > before  # type: ignore[operator]


@cache
def _adapter(shape: type) -> TypeAdapter[Any]:
    return TypeAdapter(described(shape))


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise MalformedBody(f"the body has the number {digits:.30}, which no double holds")
    return value


def _classes(root: type[RankfoldError]) -> Iterator[type[RankfoldError]]:
    yield root
    for child in root.__subclasses__():
        yield from _classes(child)


_BY_CODE = {error.code: error for error in _classes(RankfoldError)}


def _by_status(status: int) -> type[RankfoldError]:
    """Return the class of a code that this version does not know."""
    return RequestError if status < httpx.codes.INTERNAL_SERVER_ERROR else RankfoldError


def _seconds(header: str | None) -> float:
    return float(header) if header is not None and header.isdecimal() else 1.0
