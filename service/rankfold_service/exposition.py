"""Answers scrapes: the gauges of every run, before the aggregator's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from rankfold_service.lines import Lines, document
from rankfold_service.store import Name
from rankfold_service.telemetry import Telemetry

OPENMETRICS_TYPE = "application/openmetrics-text"


class Format(NamedTuple):
    """A way to write a scrape down."""

    content_type: str
    encode: Callable[[CollectorRegistry], bytes]


TEXT = Format("text/plain; version=0.0.4; charset=utf-8", generate_latest)
OPENMETRICS = Format(f"{OPENMETRICS_TYPE}; version=1.0.0; charset=utf-8", generate_openmetrics)


def negotiate(accept: str | None) -> Format:
    """Return the format that an `Accept` header likes best: OpenMetrics only where it is named.

    The library's own choice is not used: it takes any version that is asked for, escapes names
    that need no escaping into others, ignores `q` and raises over `version=1.x`.
    """
    text, openmetrics = 0.0, 0.0
    for item in (accept or "").lower().split(","):
        media, *rest = (part.strip() for part in item.split(";"))
        parameters = dict(part.partition("=")[::2] for part in rest)
        quality = _quality(parameters.get("q", "1"))
        if media in ("text/plain", "text/*", "*/*"):
            text = max(text, quality)
        elif media == OPENMETRICS_TYPE and parameters.get("version", "1.").startswith("1."):
            openmetrics = max(openmetrics, quality)
    return OPENMETRICS if openmetrics > 0 and openmetrics >= text else TEXT


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


class _Rendering(NamedTuple):
    """A rendering, under way or kept, and the clock's reading when it began to look."""

    task: asyncio.Task[bytes]
    since: float


class Exposition:
    """Renders `/metrics`, off the event loop and once for everybody who asks at about one time.

    A rendering is for those who asked before it began to look at the runs. Who asks later may know
    of a report that it has not seen, and shares the next one.

    Args:
        look: returns the lines of the runs that are shown.
        telemetry: the aggregator's own figures.
        cache_seconds: for how long a rendering is given to later ones too; 0 for never.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[Mapping[Name, Lines]]],
        telemetry: Telemetry,
        cache_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._telemetry = telemetry
        self._cache_seconds = cache_seconds
        self._clock = clock
        self._latest: dict[Format, _Rendering] = {}
        self._next: dict[Format, asyncio.Task[bytes]] = {}

    async def render(self, accept: str | None) -> tuple[bytes, str]:
        """Return a scrape's body and its content type for an `Accept` header."""
        chosen = negotiate(accept)
        # Shielded: a scraper that hangs up must not take the rendering from the others.
        return await asyncio.shield(self._for_now(chosen)), chosen.content_type

    def _for_now(self, chosen: Format) -> asyncio.Task[bytes]:
        """Return the rendering that may be given to who asks now."""
        latest = self._latest.get(chosen)
        if latest is not None and self._clock() - latest.since < self._cache_seconds:
            return latest.task
        if chosen not in self._next:
            self._next[chosen] = asyncio.create_task(self._render(chosen))
        return self._next[chosen]

    async def _render(self, chosen: Format) -> bytes:
        if latest := self._latest.get(chosen):
            await asyncio.wait([latest.task])
        self._latest[chosen] = _Rendering(self._next.pop(chosen), self._clock())
        keep = False
        try:
            body = await asyncio.to_thread(self._write, chosen, await self._look())
            keep = self._cache_seconds > 0
        finally:
            if not keep:
                del self._latest[chosen]
        return body

    def _write(self, chosen: Format, runs: Mapping[Name, Lines]) -> bytes:
        lines = [*runs.values()]
        self._telemetry.note_exported(sum(run.gauges for run in lines))
        own = CollectorRegistry()
        own.register(self._telemetry)
        return document(lines, chosen.encode(own))
