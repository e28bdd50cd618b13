"""Requests have ids, and the log is quiet where all is well."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from rankfold_service.http.watch import Throttle, Watch
from rankfold_service.telemetry import Telemetry
from unit.service.http.serving import Service


def test_request_id_is_taken_over_where_it_is_sane(service: Service) -> None:
    """A caller's id is answered; one that could break a log is replaced."""
    given = service.get("/-/healthy", headers={"X-Request-ID": "trace-1.a_b"})
    assert given.headers["x-request-id"] == "trace-1.a_b"
    for bad in ("a b", "x" * 65, '"', ""):
        made = service.get("/-/healthy", headers={"X-Request-ID": bad}).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{16}-[0-9a-f]+", made)


def test_reports_are_logged_at_debug_only(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """There are thousands a second; one line each would be the load."""
    report = {"run": "r", "rank": 0}
    with caplog.at_level(logging.INFO):
        service.report(json=report)
    assert [r for r in caplog.records if r.name == "rankfold.http"] == []
    with caplog.at_level(logging.DEBUG):
        service.report(json=report)
    answered = next(r for r in caplog.records if r.name == "rankfold.http")
    assert (vars(answered)["route"], vars(answered)["status"]) == ("/api/v1/partials", 200)


def test_refusals_are_warnings(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """A refusal is logged with its code and reason, and of many alike only the first."""
    for _ in range(3):
        service.report(json={"rank": 0})
    (line,) = [r for r in caplog.records if r.name == "rankfold.http"]
    facts = vars(line)
    assert (line.levelname, facts["status"], facts["code"]) == ("WARNING", 422, "inconsistent")
    assert facts["detail"] == "/run: Field required"


def test_reads_of_what_is_not_there_are_no_warnings(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Who waits for a run asks every second; who deletes what is not there is mistaken."""
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            service.get("/api/v1/projects/a/runs/b")
        service.call("DELETE", "/api/v1/projects/a/runs/b")
    said = [r for r in caplog.records if r.name == "rankfold.http"]
    assert [(r.levelname, vars(r)["method"]) for r in said] == [
        ("INFO", "GET"),
        ("WARNING", "DELETE"),
    ]


def test_reads_of_what_is_not_there_are_told_of_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A line a second for hours would hide the others."""
    now = [0.0]
    watch = Watch(_nothing, Telemetry(), lambda: now[0])
    scope = {"method": "GET", "path": "/x", "state": {"request_id": "a"}}
    with caplog.at_level(logging.INFO):
        for now[0] in range(121):
            watch.note(scope, 404, now[0])
    said = [vars(r).get("also_held_back") for r in caplog.records if r.name == "rankfold.http"]
    assert said == [None, 59, 59]


async def _nothing(_: Scope, __: Receive, ___: Send) -> None:
    """Answer nothing."""


def test_requests_are_counted_by_route_template(service: Service) -> None:
    """Paths are endless and would be a time series each."""
    service.get("/api/v1/projects/a/runs/b")
    service.get("/nothing/here")
    scrape = service.get("/metrics").text
    template = "/api/v1/projects/{project}/runs/{run}"
    assert f'rankfold_requests_total{{code="404",route="{template}"}} 1.0' in scrape
    assert 'rankfold_requests_total{code="404",route="unmatched"} 1.0' in scrape


def test_throttle_counts_what_it_holds_back() -> None:
    """One line per key and period, and the next one says how many were left out."""
    now = [0.0]
    throttle = Throttle(1.0, lambda: now[0])
    assert [throttle.pass_("a"), throttle.pass_("a"), throttle.pass_("b")] == [0, None, 0]
    now[0] = 1.0
    assert [throttle.pass_("a"), throttle.pass_("a")] == [1, None]


def test_watch_cuts_an_answer_that_fails_half_way() -> None:
    """Where the answer has begun, the server is told, which ends the connection."""

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("late")

    async def receive() -> Message:
        raise AssertionError

    async def send(_: Message) -> None:
        pass

    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": []}
    with pytest.raises(ValueError, match="late"):
        asyncio.run(Watch(app, Telemetry())(scope, receive, send))
