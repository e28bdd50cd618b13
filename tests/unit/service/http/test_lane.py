"""Whole reports that bypass the messages of ASGI: answered, refused and failed like all others."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from rankfold.errors import StoreUnavailable
from rankfold_service.settings import Settings
from unit.service.http.serving import Service, Start

GOOD = b'{"run":"r","rank":0}'
Answered = tuple[int, dict[bytes, bytes], bytes]


class Asked:
    """A whole request, and the answer that it got."""

    def __init__(self, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        typed = (b"content-type", b"application/json")
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": "/api/v1/partials",
            "headers": [typed, (b"x-request-id", b"id-1"), *headers],
        }
        self.body = body
        self.answered: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()

    def answer(self, status: int, headers: Any, body: bytes) -> None:
        """Keep the answer; a second one is an error."""
        self.answered.set_result((status, dict(headers), body))


def ask(service: Service, body: bytes) -> Answered:
    """Hand a report over and return its answer."""

    async def asking() -> Answered:
        asked = Asked(body)
        assert service.app.take(asked)
        return await asyncio.wait_for(asked.answered, 10)

    return asyncio.run(asking())


def requests(service: Service, code: int) -> int:
    """Return how many reports were answered with a status."""
    text = service.get("/metrics").text
    line = f'rankfold_requests_total{{code="{code}",route="/api/v1/partials"}} '
    return next((int(float(x[len(line) :])) for x in text.splitlines() if x.startswith(line)), 0)


def test_lane_gives_receipts_and_refusals_with_the_request_id(service: Service) -> None:
    """Both say which request they answer, and both are counted."""
    status, headers, body = ask(service, GOOD)
    assert (status, headers[b"x-request-id"]) == (200, b"id-1")
    assert json.loads(body) == {"accepted": 0, "duplicates": 0, "conflicts": 0}
    status, headers, body = ask(service, b'{"run":"r"}')
    assert (status, headers[b"content-type"]) == (422, b"application/problem+json")
    assert json.loads(body)["request_id"] == "id-1"
    assert (requests(service, 200), requests(service, 422)) == (1, 1)
    assert 'rankfold_rejected_total{reason="inconsistent"} 1.0' in service.get("/metrics").text


def test_lane_tells_who_sent_a_report_that_the_store_failed(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is foreseen says when to come again; of what is not, only the log has the reason."""
    failures: list[Exception] = [StoreUnavailable("no disk"), ZeroDivisionError("secret")]

    def fail(report: Any, answer: Any) -> None:
        asyncio.get_running_loop().call_soon(answer, failures.pop(0))

    monkeypatch.setattr(service.aggregator, "hand_over", fail)
    status, headers, body = ask(service, GOOD)
    assert (status, json.loads(body)["detail"]) == (503, "no disk")
    assert b"retry-after" in headers
    with caplog.at_level(logging.ERROR):
        status, _, body = ask(service, GOOD)
    assert (status, json.loads(body)["code"]) == (500, "internal")
    assert b"secret" not in body
    (failed,) = [record for record in caplog.records if record.message == "request failed"]
    assert vars(failed)["request_id"] == "id-1"


def test_lane_leaves_large_reports_alone(service: Service) -> None:
    """What takes long to decode is not decoded between other requests."""

    async def asking() -> bool:
        return service.app.take(Asked(GOOD + b" " * 300_000))

    assert asyncio.run(asking()) is False
    assert requests(service, 200) == 0


def test_lane_bounds_what_waits_and_gives_it_back(start: Start) -> None:
    """Bodies beyond the budget are refused for now; answered ones make room again."""
    service = start(settings=Settings(max_in_flight=50, max_body=50))

    async def asking() -> list[int]:
        asked = [Asked(GOOD) for _ in range(3)]
        for each in asked:
            assert service.app.take(each)
        first = [(await asyncio.wait_for(each.answered, 10))[0] for each in asked]
        again = Asked(GOOD)
        assert service.app.take(again)
        return [*first, (await asyncio.wait_for(again.answered, 10))[0]]

    assert asyncio.run(asking()) == [200, 200, 429, 200]
