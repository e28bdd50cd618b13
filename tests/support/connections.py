"""Connections of our own to an aggregator, for requests that no client library would send."""

from __future__ import annotations

import re
import socket

from support.server import Server

# Status, headers and body.
Answer = tuple[int, dict[str, str], bytes]

NEXT = re.compile(rb"(?=HTTP/1\.1 \d)")


def head(body: bytes, *extra: str, content_type: str = "application/json") -> bytes:
    """Return the head of a report."""
    lines = [
        "POST /api/v1/partials HTTP/1.1",
        "host: x",
        f"content-type: {content_type}",
        f"content-length: {len(body)}",
        *extra,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def connected(server: Server) -> socket.socket:
    """Return a connection of our own to a server."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def answers(connection: socket.socket, count: int) -> list[Answer]:
    """Return the status, headers and body of the next answers."""
    data = b""
    while True:
        found = []
        for each in NEXT.split(data)[1:]:
            top, end, body = each.partition(b"\r\n\r\n")
            status, *lines = top.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            if end and len(body) == int(headers.get("content-length", 0)):
                found.append((int(status.split()[1]), headers, body))
        if len(found) == count:
            return found
        more = connection.recv(65536)
        assert more, data
        data += more
