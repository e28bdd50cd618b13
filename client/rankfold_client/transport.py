"""HTTP, and nothing but HTTP, to the aggregator: the one file that knows httpx."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.parse import quote

import httpx

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
from rankfold.wire import API_VERSION, REPORT_PATH, Receipt

DEFAULT_URL = "http://127.0.0.1:9814"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
GZIP_FROM = 4096
MOST_ANSWER = 1 << 20
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


class Transport(Protocol):
    """What a sender needs of the network. Both calls raise RankfoldError and nothing else."""

    def report(self, body: bytes) -> Receipt:
        """Send a report; return what became of it."""
        ...

    def finish(self, project: str, run: str, attempt: int) -> None:
        """Mark an attempt finished."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class HttpTransport:
    """A transport over HTTP/1.1 with kept connections.

    Args:
        url: the aggregator's address.
        token: sent as a bearer token; None or an empty one sends none.
        timeout: seconds for connecting, and for each wait while sending and receiving.
        wall: the time of day in seconds since 1970, to read dates against.
        clock: seconds that only grow; an answer may take three timeouts as a whole.
        handler: stands in for the network.

    Raises:
        ValueError: the address is no http or https URL.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float = 10.0,
        *,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        handler: httpx.BaseTransport | None = None,
    ) -> None:
        host = _checked_host(url)
        self._wall, self._clock, self._patience = wall, clock, 3 * timeout
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        token = (token or "").strip()
        if not token.isascii() or any(not " " < char < "\x7f" for char in token):
            raise ValueError("a token has only visible ASCII characters and no spaces")
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx.Client(
            base_url=url.rstrip("/"),
            headers=headers,
            timeout=timeout,
            transport=handler,
            # A proxy that the environment names cannot lead to this very machine.
            trust_env=host not in LOOPBACK,
        )
        # As errors name it: what tells a user where it went, and no password.
        self._address = str(httpx.URL(url.rstrip("/")).copy_with(userinfo=b""))

    def report(self, body: bytes) -> Receipt:
        """Send a report, compressed where that pays; return what became of it."""
        headers = {}
        if len(body) >= GZIP_FROM:
            # No time in the header, so that a report sent again has the same bytes.
            body = gzip.compress(body, compresslevel=1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        answer = self._post(REPORT_PATH, body, headers)
        numbers = [answer.get(name) for name in ("accepted", "duplicates", "conflicts")]
        if not all(type(number) is int for number in numbers):
            raise Unreachable(
                f"{self._address}: what answered is no aggregator: its answer is no receipt"
            )
        return Receipt(**{name: answer[name] for name in ("accepted", "duplicates", "conflicts")})

    def finish(self, project: str, run: str, attempt: int) -> None:
        """Mark an attempt finished; again changes nothing."""
        names = [quote(name, safe="") for name in (project, run)]
        path = "/api/v{}/projects/{}/runs/{}/finish".format(API_VERSION, *names)
        self._post(path, json.dumps({"attempt": attempt}).encode(), {})

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()

    def _post(self, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        try:
            with self._client.stream("POST", path, content=body, headers=headers) as response:
                answer = self._read_object(response)
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError) as error:
            raise Unreachable(f"{self._address}: {type(error).__name__}: {error}") from error
        if response.status_code == httpx.codes.OK:
            return answer
        asked = response.headers.get("Retry-After")
        raise translated(response.status_code, asked, answer, self._wall(), self._address)

    def _read_object(self, response: httpx.Response) -> dict[str, Any]:
        """Return the JSON object of an answer; an empty one where it is none or far too long."""
        body, late = b"", self._clock() + self._patience
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > MOST_ANSWER:
                return {}
            if self._clock() > late:
                raise Unreachable(f"{self._address}: the answer takes too long")
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            return {}
        return answer if isinstance(answer, dict) else {}


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
    detail = where + str(problem.get("detail") or problem.get("title") or f"status {status}")
    if status >= 500 or status in _PASSING:
        kind = Overloaded if status == 429 else Unavailable
        return kind(detail, seconds_until(retry_after, now))
    if status == 422:
        return Inconsistent(_field_errors(problem, detail))
    if status >= 400:
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
        FieldError(str(error.get("pointer", "")), str(error.get("reason", "")))
        for error in (errors if isinstance(errors, list) else [])
        if isinstance(error, dict)
    ]
    return found or [FieldError("", detail)]


def _checked_host(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"url {url!r} cannot be read: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"url must begin with http:// or https:// and a host, not {url!r}")
    return parsed.host
