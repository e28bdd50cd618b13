"""What comes over a connection is answered in its order, whatever it offers and however it ends."""

from __future__ import annotations

import json
import re
import socket
import struct
import time

import pytest

from support.connections import answers, connected, head
from support.server import Server

REPORT = b'{"run":"r","rank":0,"partials":[]}'
READ = b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n"
# What `curl --http2` says to a server that it does not know yet.
OFFER = (
    "connection: Upgrade, HTTP2-Settings",
    "upgrade: h2c",
    "http2-settings: AAMAAABkAAQAAP__",
)
GARBAGE = [b"\x16\x03\x01\x02\x00\x01", b"GET nowhere\r\n\r\n", b"GET / HTTP/1.1\r\n: x\r\n\r\n"]


def rest_of(connection: socket.socket) -> bytes:
    """Return what else comes until the other side ends the connection."""
    data = b""
    while more := connection.recv(65536):
        data += more
    return data


def assert_quiet(server: Server) -> None:
    """Nothing failed in a way that nobody foresaw, and others are answered."""
    assert server.client.get("/-/healthy").status_code == 200
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("size", [10**6, 100, 7])
def test_offer_of_another_protocol_is_left_aside(durable: Server, size: int) -> None:
    """Reports and reads that offer HTTP/2 or WebSockets are taken as the HTTP/1.1 that they are."""
    chunked = head(b"", *OFFER, "transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"")
    socketed = ("connection: upgrade", "upgrade: websocket", "sec-websocket-key: eA==")
    row = [
        head(REPORT, *OFFER) + REPORT,
        READ,
        READ.replace(b"\r\n\r\n", "\r\n".join(["", *OFFER, "", ""]).encode()),
        chunked + b"%x\r\n%b\r\n0\r\n\r\n" % (len(REPORT), REPORT),
        head(b"no", *socketed) + b"no",
        head(REPORT) + REPORT,
    ]
    sent = b"".join(row)
    with connected(durable) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(sent), size):
            connection.sendall(sent[at : at + size])
            time.sleep(0.001)
        found = [status for status, _, _ in answers(connection, len(row))]
    assert found == [200, 200, 200, 200, 400, 200]
    assert_quiet(durable)


def test_offer_does_not_lengthen_what_is_waited_for(durable: Server) -> None:
    """Whoever asks to be told before the body is told, with an offer as without."""
    with connected(durable) as connection:
        connection.sendall(head(REPORT, *OFFER, "expect: 100-continue"))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(REPORT)
        assert answers(connection, 1)[0][0] == 200


@pytest.mark.parametrize("garbage", GARBAGE, ids=["tls", "words", "header"])
def test_garbage_after_requests_costs_them_nothing(durable: Server, garbage: bytes) -> None:
    """Every request before it is answered, in order; then it is refused, once."""
    row = [head(REPORT) + REPORT, READ] * 20
    with connected(durable) as connection:
        connection.sendall(b"".join(row) + garbage)
        found = [status for status, _, _ in answers(connection, len(row) + 1)]
        assert rest_of(connection) == b""
    assert found == [200] * len(row) + [400]
    assert_quiet(durable)


@pytest.mark.parametrize("before", [0, 1, 3])
def test_request_that_breaks_in_its_body_is_refused(durable: Server, before: int) -> None:
    """It gets one answer, after those of the requests before it."""
    top = head(b"", "transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"")
    with connected(durable) as connection:
        connection.sendall((head(REPORT) + REPORT) * before + top + b"2\r\n{}\r\nno length\r\n")
        found = [status for status, _, _ in answers(connection, before + 1)]
        assert rest_of(connection) == b""
    assert found == [200] * before + [400]
    assert_quiet(durable)


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"FOO / HTTP/1.1\r\nhost: x\r\n\r\n", 400, "bad_request"),
        (b"\x00\xff\r\n\r\n", 400, "bad_request"),
        (b"GET / HTTP/1.1\r\nx: " + b"x" * 600_000, 431, "too_large"),
    ],
    ids=["method", "garbage", "head"],
)
def test_what_is_no_request_gets_a_problem_document(
    durable: Server, sent: bytes, status: int, code: str
) -> None:
    """Whoever reads errors reads this one as every other."""
    with connected(durable) as connection:
        connection.sendall(sent)
        ((told, headers, body),) = answers(connection, 1)
    document = json.loads(body)
    assert headers["content-type"] == "application/problem+json"
    assert document.keys() == {"type", "title", "status", "detail", "code", "retryable"}
    assert (told, document["status"], document["code"]) == (status, status, code)
    assert document["retryable"] is False


def test_more_requests_than_one_reads_the_answers_of_are_refused(durable: Server) -> None:
    """Each takes memory while it waits; those before are answered."""
    with connected(durable) as connection:
        connection.sendall(b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n" * 5_000)
        connection.settimeout(20)
        came = b""
        while piece := connection.recv(1 << 16):
            came += piece
    statuses = re.findall(rb"HTTP/1.1 (\d+)", came)
    assert set(statuses[:-1]) == {b"200"}
    assert statuses[-1] == b"400"
    assert b"read their answers first" in came


def test_delete_of_no_name_deletes_nothing(durable: Server) -> None:
    """Bytes that are not UTF-8 are not the run whose name is the character for such bytes."""
    run = b"/api/v1/projects/default/runs/"
    assert durable.report(run="\ufffd", rank=0).status_code == 200
    row = [(b"DELETE", b"%fe", 404), (b"DELETE", b"%ef%bf%bd%fe", 404), (b"GET", b"%EF%BF%BD", 200)]
    with connected(durable) as connection:
        for method, name, status in row:
            connection.sendall(b"%b %b%b HTTP/1.1\r\nhost: x\r\n\r\n" % (method, run, name))
            assert answers(connection, 1)[0][0] == status
    with connected(durable) as connection:
        connection.sendall(head(REPORT, "content-encoding: gzip", "content-encoding: identity"))
        connection.sendall(REPORT)
        assert answers(connection, 1)[0][0] == 415
    assert_quiet(durable)


@pytest.mark.parametrize("how", ["end", "reset"])
@pytest.mark.parametrize("what", ["scrape", "report", "large report"])
def test_client_that_leaves_amid_answers_leaves_no_trace(
    durable: Server, what: str, how: str
) -> None:
    """Its answers go nowhere, and the log has nothing to say of it."""
    for number in range(50):
        assert durable.report(run=f"run-{number}", rank=0, world_size=1).status_code == 200
    large = REPORT + b" " * 300_000
    requests = {
        "scrape": READ.replace(b"/-/healthy", b"/metrics"),
        "report": head(REPORT) + REPORT,
        "large report": head(large) + large,
    }
    for pause in (0.0, 0.005, 0.02, 0.1):
        connection = connected(durable)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(requests[what] * (3 if what == "large report" else 100))
        time.sleep(pause)
        if how == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    time.sleep(0.3)
    assert_quiet(durable)


def test_tunnel_is_refused(durable: Server) -> None:
    """A proxy is not what this is."""
    with connected(durable) as connection:
        connection.sendall(READ + b"CONNECT x:1 HTTP/1.1\r\nhost: x:1\r\n\r\nanything")
        assert [status for status, _, _ in answers(connection, 2)] == [200, 400]
        assert rest_of(connection) == b""
    assert_quiet(durable)
