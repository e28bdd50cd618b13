"""One HTTP exchange after another over a kept connection, each bounded in time and in bytes.

The standard library's client and not a larger one: those bound each wait, so that a server that
sends a byte now and then, or interim answers without end, would keep the thread for ever.
"""

from __future__ import annotations

import functools
import http.client
import io
import select
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from rankfold import __version__
from rankfold.errors import Unreachable
from rankfold.urls import why_unreadable, without_user

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
# How much is taken from the network in one go; what a hostile answer costs to read is bounded so.
READ_BYTES = 4096
# What an answer may have before its body; the library's own bound is the same for one line.
HEAD_BYTES = 65536
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a status, headers by name, and the body; none where it was too long."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Bounds:
    """How long an exchange may take and how many bytes its answer may have.

    Args:
        clock: seconds that only grow.
        pause: is called after each piece, so that other threads come to their turn.
    """

    def __init__(self, clock: Callable[[], float], pause: Callable[[], None]) -> None:
        self._clock, self._pause = clock, pause
        self._deadline, self._bytes, self._wait = 0.0, 0, 0.0

    def begin(self, within: float, wait: float, most: int) -> None:
        """Start an exchange of so many seconds, each wait and the body's bytes bounded."""
        self._deadline, self._wait = self._clock() + within, wait
        self._bytes = HEAD_BYTES + most

    def left(self) -> float:
        """Return for how long the next step may wait.

        Raises:
            TimeoutError: the time is up.
        """
        left = self._deadline - self._clock()
        if left <= 0:
            raise TimeoutError("the answer takes too long")
        return min(left, self._wait)

    def took(self, number: int) -> None:
        """Count bytes of the answer.

        Raises:
            OSError: there are too many, so that it cannot be told what they say.
        """
        self._bytes -= number
        if self._bytes < 0:
            raise OSError("the answer is far too long")
        self._pause()


class _Bounded(io.RawIOBase):
    """What a socket gives, within bounds."""

    def __init__(self, sock: socket.socket, bounds: Bounds) -> None:
        self._sock, self._bounds = sock, bounds
        # Counts as a user of the socket, which a response keeps open by it.
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a part of the buffer and return how much; 0 at the end."""
        self._sock.settimeout(self._bounds.left())
        number = self._raw.readinto(memoryview(buffer)[:READ_BYTES]) or 0
        self._bounds.took(number)
        return number

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()


class _Reading:
    """The one thing that a response wants of a socket."""

    def __init__(self, sock: socket.socket, bounds: Bounds) -> None:
        self._sock, self._bounds = sock, bounds

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return what the answer is read from."""
        return io.BufferedReader(_Bounded(self._sock, self._bounds), READ_BYTES)


def _response(bounds: Bounds, sock: socket.socket, **options: Any) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(_Reading(sock, bounds), **options)  # type: ignore[arg-type]


class Exchange:
    """A client of one address; for one thread at a time.

    Args:
        url: the address.
        timeout: seconds for connecting, and for each wait while sending and receiving.
        clock: seconds that only grow.
        pause: see `Bounds`.

    Attributes:
        address: the URL as errors name it: what tells a user where it went, and no password.

    Raises:
        ValueError: the address is no http or https URL, or the environment's proxy is none.
    """

    def __init__(
        self,
        url: str,
        timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        parts = _split("url", url, url)
        self.address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
        self._timeout = timeout
        self._bounds = Bounds(clock, pause)
        self._headers = {"User-Agent": f"rankfold/{__version__}"} | _basic("Authorization", parts)
        self._base = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~")
        try:
            self._connection = self._connect(parts)
        except http.client.InvalidURL as error:
            raise _unreadable("url", url, error) from error
        self._connection.response_class = functools.partial(_response, self._bounds)  # type: ignore[assignment]

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        *,
        within: float,
        most: int,
    ) -> Answer:
        """Ask, and return what was answered.

        Args:
            method: GET or POST.
            path: below the address, percent-encoded.
            body: what is sent.
            headers: beside those that every request has.
            within: seconds for the whole of it.
            most: bytes that the body of an answer may have.

        Raises:
            Unreachable: nothing answered in time, or no HTTP.
        """
        self._bounds.begin(within, self._timeout, most)
        try:
            return self._ask(method, path, body, self._headers | headers, most)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise Unreachable(f"{self.address}: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], most: int
    ) -> Answer:
        self._drop_if_stale()
        if self._connection.sock is None:
            self._connection.timeout = self._bounds.left()
            self._connection.connect()
        self._connection.sock.settimeout(self._bounds.left())
        self._connection.request(method, self._base + path, body, headers)
        response = self._connection.getresponse()
        with response:
            told = response.read(most + 1)
            # Of a length that was announced; other forms say where they end.
            missing = response.length or 0
        if len(told) > most:
            self.close()
            return Answer(response.status, response.headers, b"")
        if missing:
            raise OSError(f"the answer was cut short by {missing} bytes")
        return Answer(response.status, response.headers, told)

    def _drop_if_stale(self) -> None:
        """Let go of a connection on which something came that nobody asked for, or its end."""
        sock = self._connection.sock
        if sock is not None:
            waiting = select.poll()
            waiting.register(sock, select.POLLIN)
            if waiting.poll(0):
                self.close()

    def _connect(self, parts: SplitResult) -> http.client.HTTPConnection:
        """Return a connection that is not open yet, by the environment's proxy where it has one."""
        host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
        proxy = _proxy(parts.scheme, host)
        if proxy is None:
            return _connection(parts.scheme, host, port)
        way = _split("the proxy", proxy, proxy if "://" in proxy else f"http://{proxy}")
        if way.scheme != "http":
            raise ValueError(f"the proxy must be spoken to by http://, not {way.scheme}://")
        pass_ = _basic("Proxy-Authorization", way)
        through = way.hostname or "", way.port or PORTS[way.scheme]
        if parts.scheme == "https":
            tunnel = _connection("https", *through)
            tunnel.set_tunnel(host, port, pass_)
            return tunnel
        self._headers |= pass_
        shown = f"[{host}]" if ":" in host else host
        self._base = f"http://{shown}:{port}{self._base}"
        return _connection("http", *through)


def _connection(scheme: str, host: str, port: int) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(host, port, context=ssl.create_default_context())
    return http.client.HTTPConnection(host, port)


def _proxy(scheme: str, host: str) -> str | None:
    """Return the proxy that the environment names; it cannot lead to this very machine."""
    if host in LOOPBACK or proxy_bypass(host):
        return None
    proxies = getproxies()
    return proxies.get(scheme) or proxies.get("all")


def _split(what: str, shown: str, url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _unreadable(what, shown, error) from error
    if parts.scheme not in PORTS or not parts.hostname or port == 0:
        hidden = without_user(shown)
        raise ValueError(f"{what} must begin with http:// or https:// and a host, not {hidden!r}")
    return parts


def _unreadable(what: str, url: str, error: Exception) -> ValueError:
    why = why_unreadable(url, error)
    return ValueError(f"{what} {without_user(url)!r} cannot be read: {why}")


def _basic(header: str, parts: SplitResult) -> dict[str, str]:
    """Return the header that says the name and password of an address; none where it has none."""
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {header: "Basic " + b64encode(pair.encode()).decode()}
