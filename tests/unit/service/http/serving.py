"""An application over the memory store, called without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx

from rankfold.rules import RuleSet
from rankfold_service.aggregate import Aggregator
from rankfold_service.exposition import Exposition
from rankfold_service.http.app import create_api, create_app
from rankfold_service.http.auth import Tokens
from rankfold_service.http.parts import Parts
from rankfold_service.http.plain import ReportEndpoint
from rankfold_service.judge import Ages
from rankfold_service.retention import Retention
from rankfold_service.settings import Settings
from rankfold_service.telemetry import Telemetry
from rankfold_service.writer import Writer

CASES = json.loads((Path(__file__).parents[3] / "cases" / "requests.json").read_text())


class Service:
    """One aggregator and its application."""

    def __init__(self, writer: Writer, tokens: Tokens, settings: Settings, rules: RuleSet) -> None:
        self.telemetry = Telemetry()
        self.aggregator = Aggregator(writer, rules, Ages(), Retention(), lambda: 1000.0)
        self.exposition = Exposition(self.aggregator.look, self.telemetry, 0)
        parts = Parts(self.aggregator, self.exposition, self.telemetry, tokens, settings)
        self.app = create_app(parts)
        self.api = create_api(parts, ReportEndpoint(parts))

    def call(self, method: str, url: str, **request: Any) -> httpx.Response:
        """Send one request and return its answer."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, url, **request)

        return asyncio.run(send())

    def get(self, url: str, **request: Any) -> httpx.Response:
        """Read something."""
        return self.call("GET", url, **request)

    def report(self, **request: Any) -> httpx.Response:
        """Send a report."""
        return self.call("POST", "/api/v1/partials", **request)


async def chunked(*chunks: bytes) -> AsyncIterator[bytes]:
    """Yield a body in pieces."""
    for chunk in chunks:
        yield chunk


Start = Callable[..., Service]
