"""However a report comes over its connection, whole or in parts, it gets the same answer."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from rankfold_service.cli.protocol import WHOLE_SECONDS
from support.connections import answers, connected, head
from support.server import Server

REQUESTS = json.loads((Path(__file__).parents[1] / "cases" / "requests.json").read_text())
GOOD = b'{"run":"r","rank":0,"partials":[]}'


def said(answer: tuple[int, dict[str, str], bytes]) -> Any:
    """Return what an answer says that does not differ from one request to the next."""
    status, headers, body = answer
    document = json.loads(body)
    assert document.pop("request_id", headers["x-request-id"]) == headers["x-request-id"]
    names = {k: v for k, v in headers.items() if k not in ("date", "x-request-id")}
    return status, {**names, "content-length": ""}, document


def test_report_is_answered_the_same_whole_and_in_parts(durable: Server) -> None:
    """Good and bad ones: in one piece, with the body by itself at once, and with it late."""
    good = {"content_type": "application/json", "body": GOOD.decode()}
    large = {"content_type": "application/json", "body": GOOD.decode() + " " * 300_000}
    for case in [*REQUESTS, good, large]:
        body = case["body"].encode()
        top = head(body, content_type=case["content_type"])
        found = []
        for pieces, pause in (([top + body], 0.0), ([top, body], 0.0), ([top, body], 0.1)):
            with connected(durable) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(pause)
                found.append(said(*answers(connection, 1)))
        whole, apart, late = found
        if whole[0] == 200:  # a partial counts once
            whole[2].update(accepted=0, duplicates=0)
            apart[2].update(accepted=0, duplicates=0)
            late[2].update(accepted=0, duplicates=0)
        assert whole == apart == late
    assert WHOLE_SECONDS < 0.1


def test_reports_in_a_row_are_answered_in_their_order(durable: Server) -> None:
    """Sent without waiting for answers, good, bad and other requests keep their order."""
    bad = b'{"run":"r"}'
    large = GOOD + b" " * 300_000
    read = b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n"
    row = [head(b) + b for b in (GOOD, bad, GOOD, large, bad)] + [read] + [head(GOOD) + GOOD] * 300
    with connected(durable) as connection:
        connection.sendall(b"".join(row))
        found = [status for status, _, _ in answers(connection, len(row))]
    assert found == [200, 422, 200, 200, 422, 200] + [200] * 300


def test_connection_ends_where_its_report_says_so(durable: Server) -> None:
    """`Connection: close` is said and done, for receipts and for refusals."""
    for body, status in ((GOOD, 200), (b"no", 400)):
        with connected(durable) as connection:
            connection.sendall(head(body, "connection: close") + body)
            (answer,) = answers(connection, 1)
            assert (answer[0], answer[1]["connection"]) == (status, "close")
            assert connection.recv(10) == b""


def test_report_that_asks_first_is_told_to_go_on(durable: Server) -> None:
    """Who expects 100-continue gets it before the body is sent."""
    with connected(durable) as connection:
        connection.sendall(head(GOOD, "expect: 100-continue"))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(GOOD)
        assert answers(connection, 1)[0][0] == 200


@pytest.mark.parametrize("pause", [0.0, 0.1])
def test_report_whose_sender_left_before_its_end_is_not_taken(
    durable: Server, pause: float
) -> None:
    """Half a report is none, and the server goes on."""
    body = b'{"run":"half","rank":0}'
    with connected(durable) as connection:
        connection.sendall(head(body) + body[:5])
        time.sleep(pause)
    time.sleep(0.1)
    assert durable.report(run="r", rank=0).status_code == 200
    assert durable.client.get("/api/v1/projects/default/runs/half").status_code == 404


def test_report_whose_sender_left_after_its_end_is_taken(durable: Server) -> None:
    """It was received, so it counts, whoever is left to hear of it."""
    body = b'{"run":"whole","rank":0}'
    with connected(durable) as connection:
        connection.sendall(head(body) + body)
    deadline = time.monotonic() + 10
    while durable.client.get("/api/v1/projects/default/runs/whole").status_code != 200:
        assert time.monotonic() < deadline
