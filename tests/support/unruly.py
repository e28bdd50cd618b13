"""A TCP server on a real socket that does to each connection what a test says."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator

STEP = 0.02
NEVER = 60.0

Behaviour = Callable[["Visit"], None]


class Visit:
    """One connection, and what may be done to it.

    Args:
        sock: the connection.
        over: is set when the server ends.
        received: where whole requests are noted.
    """

    def __init__(self, sock: socket.socket, over: threading.Event, received: list[bytes]) -> None:
        self.sock, self._over, self._received = sock, over, received

    def read(self) -> bytes:
        """Return one request, its head and its body; empty where there is none."""
        data = b""
        while b"\r\n\r\n" not in data:
            part = self.sock.recv(65536)
            if not part:
                return b""
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        while len(body) < int(fields.get(b"content-length", 0)):
            body += self.sock.recv(65536)
        self._received.append(head + b"\r\n\r\n" + body)
        return self._received[-1]

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.sock.sendall(data)

    def wait(self, seconds: float = NEVER) -> None:
        """Do nothing, for as long as the server lives at most."""
        self._over.wait(seconds)

    def ended(self) -> bool:
        """Whether the server ends."""
        return self._over.is_set()

    def reset(self) -> None:
        """Let the peer get a reset instead of an end."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Unruly:
    """Serves each connection in a thread of its own.

    Args:
        behave: what to do to a connection.

    Attributes:
        url: where it listens.
        received: every whole request, as it came.
        visits: how many connections there were.
    """

    def __init__(self, behave: Behaviour) -> None:
        self._behave = behave
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self.received: list[bytes] = []
        self.visits = 0
        self._accepting = threading.Thread(target=self._accept)

    def __enter__(self) -> Unruly:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        # Wakes up whoever waits in accept or recv.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        for sock in list(self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.visits += 1
            thread = threading.Thread(target=self._serve, args=(sock,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        self._open.add(sock)
        with sock, contextlib.suppress(OSError):
            self._behave(Visit(sock, self._over, self.received))
        self._open.discard(sock)


def http(status: int, document: object = b"", *headers: str) -> bytes:
    """Return a whole answer of HTTP/1.1."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def answering(*answers: bytes) -> Behaviour:
    """Answer the first requests so, in order over all connections, and the others like the last."""
    left = list(answers)

    def behave(visit: Visit) -> None:
        while visit.read():
            visit.send(left.pop(0) if len(left) > 1 else left[0])

    return behave


def hang(visit: Visit) -> None:
    """Read nothing and say nothing."""
    visit.wait()


def hang_after_reading(visit: Visit) -> None:
    """Read the request and say nothing."""
    visit.read()
    visit.wait()


def close_at_once(_: Visit) -> None:
    """Take the connection and close it."""


def reset(visit: Visit) -> None:
    """Read a little and reset."""
    visit.sock.recv(100)
    visit.reset()


def trickle_head(visit: Visit) -> None:
    """Send a good answer's head, a byte at a time, and never come to its end."""
    visit.read()
    for byte in _for_ever(visit, b"HTTP/1.1 200 OK\r\nX-Filler: " + b"x" * 60000):
        visit.send(bytes([byte]))
        visit.wait(STEP)


def trickle_body(visit: Visit) -> None:
    """Send a body of a known length, a byte at a time."""
    visit.read()
    visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")
    for byte in _for_ever(visit, b" " * 60000):
        visit.send(bytes([byte]))
        visit.wait(STEP)


def flood_body(visit: Visit) -> None:
    """Send a body without an end, as fast as it is taken."""
    visit.read()
    visit.send(b"HTTP/1.1 200 OK\r\n\r\n")
    while not visit.ended():
        visit.send(b" " * 65536)


def flood_chunks(visit: Visit) -> None:
    """Send a body in chunks of one byte, without an end."""
    visit.read()
    visit.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not visit.ended():
        visit.send(b"1\r\n \r\n" * 10000)


def flood_headers(visit: Visit) -> None:
    """Send headers without an end."""
    visit.read()
    visit.send(b"HTTP/1.1 200 OK\r\n")
    while not visit.ended():
        visit.send(b"X-Filler: y\r\n" * 5000)


def flood_interim(visit: Visit) -> None:
    """Send interim answers without an end."""
    visit.read()
    while not visit.ended():
        visit.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 2000)


def lie_about_length(visit: Visit) -> None:
    """Announce more than memory holds, send a little, and close."""
    visit.read()
    visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999\r\n\r\n{")


def lie_about_chunk(visit: Visit) -> None:
    """Announce a chunk of more than memory holds, and close."""
    visit.read()
    visit.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFF\r\n{")


def redirect_to_itself(visit: Visit) -> None:
    """Send the client in circles."""
    while visit.read():
        visit.send(http(307, b"", "Location: /api/v1/partials"))


def nonsense(seed: int) -> Behaviour:
    """Answer with bytes that are drawn at random, some of them parts of real answers."""

    def behave(visit: Visit) -> None:
        chance = random.Random(seed)
        visit.read()
        for _ in range(chance.randrange(1, 20)):
            visit.send(chance.choice(_SHARDS) if chance.random() < 0.7 else chance.randbytes(50))

    return behave


_SHARDS = (
    *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n", b"\r\n\r\n", b"HTTP/9.9 "),
    *(b"Content-Length: 12\r\n", b"Content-Length: -3\r\n", b"Content-Length: \xb2\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"5\r\n{}   \r\n", b"0\r\n\r\n", b"zz\r\n", b"-1\r\n"),
    *(b'{"accepted": 1}', b"[" * 5000, b": x\r\n", b"\xff\xfe\x00", b"HTTP/1.1 99999 \r\n"),
    *(b"Connection: close\r\n", b"Retry-After: 1e9\r\n", b"Content-Encoding: gzip\r\n"),
)

HOSTILE: dict[str, Behaviour] = {
    "hang": hang,
    "hang after reading": hang_after_reading,
    "close at once": close_at_once,
    "reset": reset,
    "trickle head": trickle_head,
    "trickle body": trickle_body,
    "flood body": flood_body,
    "flood chunks": flood_chunks,
    "flood headers": flood_headers,
    "flood interim": flood_interim,
    "lie about length": lie_about_length,
    "lie about chunk": lie_about_chunk,
    "redirect": redirect_to_itself,
    "error": answering(http(500)),
    "no aggregator": answering(http(200, b"<html>log in</html>")),
    "no content": answering(b"HTTP/1.1 204 x\r\n\r\n"),
}


def _for_ever(visit: Visit, data: bytes) -> Iterator[int]:
    for byte in data:
        if visit.ended():
            return
        yield byte


def main() -> None:
    """Serve what the command line names, for as long as the process lives."""
    with Unruly(HOSTILE[sys.argv[1]]) as server:
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
