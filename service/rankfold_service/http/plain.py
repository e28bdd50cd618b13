"""The routes without the framework's machinery: reports, the scrape, health and readiness."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from rankfold.errors import RankfoldError, Unavailable
from rankfold.wire import REPORT_PATH, Receipt, Report
from rankfold_service.http.auth import Grant
from rankfold_service.http.body import Body, by_name, is_packed, read_body
from rankfold_service.http.budget import Budget
from rankfold_service.http.decode import decode_report
from rankfold_service.http.extent import check_extent
from rankfold_service.http.parts import Parts, admit, parts_of
from rankfold_service.http.problems import answer_problem

_log = logging.getLogger("rankfold.http")

# A larger body takes so long to decode that it must not hold up every other request; few of
# them are decoded at a time, for each takes many times its size.
LARGE = 256 * 1024
MOST_LARGE = 2

Header = tuple[bytes, bytes]
JSON: Header = (b"content-type", b"application/json")


class PlainRoute(Route):
    """A route that says which it is, as those of the framework do, for who counts requests."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return how far the route fits a request, and what it adds to it."""
        match, added = super().matches(scope)
        return match, added if match is Match.NONE else {**added, "route": self}


class ReportEndpoint:
    """`POST /api/v1/partials`, the hot path: raw bytes to a durable receipt."""

    path = REPORT_PATH

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._large = asyncio.Semaphore(MOST_LARGE)
        self._budget = Budget(parts.settings.max_in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one report; what a client sent that went away before its end is not applied."""
        scope["route"] = self
        try:
            receipt = await self._take(by_name(scope["headers"]), receive)
        except RankfoldError as error:
            self._count(error)
            response = await answer_problem(Request(scope), error)
            await response(scope, receive, send)
            return
        self._count(receipt)
        headers, body = receipt_answer(receipt)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def take(
        self, headers: Mapping[bytes, bytes], data: bytes, answer: Callable[[Any], None]
    ) -> bool:
        """Take one report that came whole.

        Args:
            headers: of the request, by name in lower case.
            data: its body, as it came.
            answer: is called once with the receipt, or with the error for which nothing was
                applied; maybe before this returns.

        Returns:
            False, and nothing was done, where the body is so large that it has to be awaited.
        """
        share = self._budget.share()

        def finish(outcome: Receipt | Exception) -> None:
            share.give_back()
            self._count(outcome)
            answer(outcome)

        try:
            grant = self._admit(headers)
            body = Body(data, is_packed(headers))
            if not body.is_small(LARGE):
                return False
            share.take(len(data))
            report = self._decoded(body)
            grant.require(report.project)
            self._parts.aggregator.hand_over(report, finish)
        except Exception as error:  # noqa: BLE001 - it is the answer
            finish(error)
        return True

    def _admit(self, headers: Mapping[bytes, bytes]) -> Grant:
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        return self._parts.tokens.admit(authorization, "write")

    def _count(self, outcome: Receipt | Exception) -> None:
        telemetry = self._parts.telemetry
        if isinstance(outcome, Receipt):
            telemetry.count_receipt(outcome)
        elif isinstance(outcome, RankfoldError):
            telemetry.reject(outcome.code)

    async def _take(self, headers: dict[bytes, bytes], receive: Receive) -> Receipt:
        parts = self._parts
        limits = parts.settings
        grant = self._admit(headers)
        with self._budget.share() as share:
            body = await read_body(
                headers, receive, limits.max_body, limits.body_timeout, share.take
            )
            report = await self._decode(body)
            grant.require(report.project)
            return await parts.aggregator.ingest(report)

    async def _decode(self, body: Body) -> Report:
        if body.is_small(LARGE):
            return self._decoded(body)
        async with self._large:
            return await asyncio.to_thread(self._decoded, body, large=True)

    def _decoded(self, body: Body, *, large: bool = False) -> Report:
        settings = self._parts.settings
        document = body.unpacked(settings.max_body)
        if large:
            check_extent(document, settings.max_items)
        return decode_report(document, self._parts.aggregator.rules, settings.max_items)


def receipt_answer(receipt: Receipt) -> tuple[list[Header], bytes]:
    """Return the headers and the body of an answer that is a receipt."""
    body = b'{"accepted":%d,"duplicates":%d,"conflicts":%d}' % (
        receipt.accepted,
        receipt.duplicates,
        receipt.conflicts,
    )
    return [JSON, (b"content-length", b"%d" % len(body))], body


async def metrics(request: Request) -> Response:
    """`GET /metrics`: every gauge, in text or OpenMetrics."""
    admit(request, "read").require(None)
    body, content_type = await parts_of(request).exposition.render(request.headers.get("accept"))
    return Response(body, headers={"Content-Type": content_type})


async def healthy(_: Request) -> Response:
    """`GET /-/healthy`: the process lives and answers."""
    return Response(b"healthy\n", media_type="text/plain")


async def ready(request: Request) -> Response:
    """`GET /-/ready`: a report could be made durable, and a scrape renders."""
    parts = parts_of(request)
    await parts.aggregator.probe()
    try:
        await parts.exposition.render(None)
    except RankfoldError:
        raise
    except Exception as error:
        _log.exception("a scrape does not render")
        raise Unavailable("a scrape does not render") from error
    return Response(b"ready\n", media_type="text/plain")


def plain_routes(reports: ReportEndpoint) -> list[Route]:
    """Return the routes; that of reports is there for who asks what may be asked."""
    return [
        PlainRoute(REPORT_PATH, reports, methods=["POST"]),
        PlainRoute("/metrics", metrics),
        PlainRoute("/-/healthy", healthy),
        PlainRoute("/-/ready", ready),
    ]
