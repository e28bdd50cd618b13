"""What the API means in HTTP: requests, receipts, and every failure as one error of ours."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from rankfold.errors import (
    FieldError,
    Forbidden,
    Inconsistent,
    MalformedBody,
    NotFound,
    Overloaded,
    RankfoldError,
    RequestError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unreachable,
    UnsupportedMedia,
)
from rankfold.wire import API_VERSION, REPORT_PATH, UNSERVED, Receipt
from rankfold_client.exchange import Answer, Exchange
from rankfold_client.report import printable
from rankfold_client.seconds import to_seconds

DEFAULT_URL = "http://127.0.0.1:9814"
# Below, a report is one packet or a few, and compressing saves less than it costs.
GZIP_FROM, GZIP_LEVEL = 4096, 1
# So does it where a report is full of digits: they take ten times as long and shrink to a third.
# Its end tells, where the worst positions are.
SAMPLE, SHRINKS = 2048, 4
MOST_RECEIPT = 64 << 10
MOST_READ = 16 << 20
# Sockets count their waits in milliseconds, up to 2^31.
MOST_TIMEOUT = 2e6
# A server that names a time beyond this is asked again all the same.
MOST_RETRY_AFTER = 600.0

_REFUSALS: dict[int, type[RequestError]] = {
    400: MalformedBody,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    413: TooLarge,
    415: UnsupportedMedia,
}
_PASSING = frozenset({408, 425, 429})
OK = 200

Query = Mapping[str, str | int | float | Sequence[str] | None]


class Sends(Protocol):
    """What a sender needs of the network. All calls raise RankfoldError and nothing else."""

    def report(self, body: bytes, number: int) -> Receipt:
        """Send a report of so many partials and scalars; return what became of each."""
        ...

    def finish(self, project: str, run: str, attempt: int) -> None:
        """Mark an attempt finished."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class Transport(Sends, Protocol):
    """What a reporter needs of it; likewise."""

    def read(self, path: str, query: Query, within: float) -> dict[str, Any]:
        """Return what a resource says, in at most so many seconds; from any thread."""
        ...


class HttpTransport:
    """A transport over HTTP/1.1 with a kept connection.

    Args:
        url: the aggregator's address.
        token: sent as a bearer token; None or an empty one sends none.
        timeout: seconds for connecting, and for each wait while sending and receiving; an
            exchange may take three of them as a whole.
        wall: the time of day in seconds since 1970, to read dates against.
        pause: is called now and then while an answer is read, see `Exchange`.

    Raises:
        ValueError: the address is no http or https URL, the token fits no header, or the timeout
            is none.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float = 10.0,
        *,
        wall: Callable[[], float] = time.time,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        seconds = min(to_seconds("timeout", timeout), MOST_TIMEOUT)
        if not seconds:
            raise ValueError("timeout must be above 0: nothing answers in no time")
        self._url, self._timeout, self._wall = url, seconds, wall
        self._exchange = Exchange(url, seconds, pause=pause)
        self._headers = {}
        token = (token or "").strip()
        if not token.isascii() or any(not " " < char < "\x7f" for char in token):
            raise ValueError("a token has only visible ASCII characters and no spaces")
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def report(self, body: bytes, number: int) -> Receipt:
        """Send a report, compressed where that pays; return what became of it.

        Args:
            body: the report.
            number: how many partials and scalars it has, which a receipt accounts for.
        """
        answer = self._post(REPORT_PATH, *packed(body))
        told = [answer.get(name) for name in ("accepted", "duplicates", "conflicts")]
        counts = [count for count in told if type(count) is int and count >= 0]
        if len(counts) != len(told):
            raise self._stranger("its answer is no receipt")
        if sum(counts) != number:
            raise self._stranger(f"its receipt is of {sum(counts)} where {number} were sent")
        return Receipt(*counts)

    def finish(self, project: str, run: str, attempt: int) -> None:
        """Mark an attempt finished; again changes nothing."""
        body = json.dumps({"attempt": attempt}).encode()
        answer = self._post(run_path(project, run, "finish"), body, {})
        told = {"project": project, "run": run, "attempt": attempt, "finished": True}
        if not told.items() <= answer.items():
            raise self._stranger("its answer says of no attempt that it is finished")

    def read(self, path: str, query: Query, within: float) -> dict[str, Any]:
        """Return what a resource says, over a connection of its own; from any thread.

        Args:
            path: of the resource, percent-encoded.
            query: its parameters; those that are None are left out.
            within: seconds for the whole of it.
        """
        told = {name: value for name, value in query.items() if value is not None}
        exchange = Exchange(self._url, min(self._timeout, within))
        path = f"{path}?{urlencode(told, doseq=True)}" if told else path
        try:
            answer = exchange.request(
                "GET", path, None, self._headers, within=within, most=MOST_READ
            )
        finally:
            exchange.close()
        return self._object(answer)

    def close(self) -> None:
        """Let go of connections."""
        self._exchange.close()

    def _stranger(self, why: str) -> Unreachable:
        return Unreachable(f"{self._exchange.address}: what answered is no aggregator: {why}")

    def _post(self, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        told = {"Content-Type": "application/json"} | self._headers | headers
        within = 3 * self._timeout
        return self._object(
            self._exchange.request("POST", path, body, told, within=within, most=MOST_RECEIPT)
        )

    def _object(self, answer: Answer) -> dict[str, Any]:
        """Return the JSON object of a good answer; an empty one where it is none."""
        try:
            told = json.loads(answer.body)
        except (ValueError, RecursionError):
            told = {}
        found = told if isinstance(told, dict) else {}
        if answer.status == OK:
            return found
        asked, address = answer.headers.get("Retry-After"), self._exchange.address
        raise translated(answer.status, asked, found, self._wall(), address)


# What a proxy answers that does not reach the aggregator, which would have sent a problem document.
_OF_OTHERS = (400, 404, 405)


def packed(body: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a body as it travels and the headers that say so: compressed where that pays."""
    if len(body) < GZIP_FROM or len(zlib.compress(body[-SAMPLE:], GZIP_LEVEL)) * SHRINKS > SAMPLE:
        return body, {}
    # No time in the header, so that a report sent again has the same bytes.
    return gzip.compress(body, GZIP_LEVEL, mtime=0), {"Content-Encoding": "gzip"}


def run_path(project: str, run: str, what: str) -> str:
    """Return where something of a run is, each name percent-encoded."""
    names = [quote(name, safe="") for name in (project, run)]
    return "/api/v{}/projects/{}/runs/{}/{}".format(API_VERSION, *names, what)


def translated(
    status: int, retry_after: str | None, problem: dict[str, Any], now: float, address: str = ""
) -> RankfoldError:
    """Return the error that an answer stands for.

    Args:
        status: the HTTP status.
        retry_after: the header of that name.
        problem: the problem document; empty where there is none.
        now: the time of day in seconds since 1970.
        address: what was asked, for the error to name.
    """
    where = address and f"{address}: "
    told = str(problem.get("detail") or problem.get("title") or f"status {status}")
    detail = where + printable(told)  # a log may be read on a terminal
    if status == 401:
        detail += "; here it comes from token= or RANKFOLD_TOKEN"
    if status == 403:
        detail += "; the project comes from project= or RANKFOLD_PROJECT here, the token from"
        detail += " token= or RANKFOLD_TOKEN"
    if status >= 500 or status in _PASSING:
        kind = Overloaded if status == 429 else Unavailable
        return kind(detail, seconds_until(retry_after, now))
    if status == 422:
        return Inconsistent(_field_errors(problem, detail))
    if status in _OF_OTHERS and "code" not in problem:
        return Unreachable(f"{where}what answered is no aggregator: status {status}")
    if status >= 400 and not str(problem.get("detail")).startswith(UNSERVED):
        return _REFUSALS.get(status, RequestError)(detail)
    return Unreachable(f"{where}what answered is no aggregator: status {status}")


def seconds_until(retry_after: str | None, now: float) -> float:
    """Return the seconds that a Retry-After header asks to wait; 0 where it asks for nothing.

    Both forms of RFC 9110, section 10.2.3, are read; what is neither asks for nothing.
    """
    if retry_after is None:
        return 0.0
    if retry_after.strip().isdecimal():
        return min(float(retry_after), MOST_RETRY_AFTER)
    try:
        until = parsedate_to_datetime(retry_after).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(0.0, until - now), MOST_RETRY_AFTER)


def _field_errors(problem: dict[str, Any], detail: str) -> list[FieldError]:
    errors = problem.get("errors")
    found = [
        FieldError(*(printable(str(error.get(name, ""))) for name in ("pointer", "reason")))
        for error in (errors if isinstance(errors, list) else [])
        if isinstance(error, dict)
    ]
    return found or [FieldError("", detail)]
