"""Answers scrapes: the gauges of every run, written by us, before the aggregator's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from rankfold_service.judge import Mark, Sight
from rankfold_service.lines import Lines, count, document, run_lines
from rankfold_service.store import Name
from rankfold_service.telemetry import Telemetry

T = TypeVar("T")

# While reports are taken: for how long lines are written before other threads get their turn, and
# for how long they do; far less than the interpreter would let them wait.
TURN_SECONDS = 0.0005
REST_SECONDS = 0.0005

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


class _Written(NamedTuple):
    """A run's lines, and what they were written of."""

    mark: Mark
    lines: Lines


class _Rendered(NamedTuple):
    """A body and the clock's reading when its runs were asked for."""

    body: bytes
    since: float


class Exposition:
    """Renders `/metrics`, off the event loop and once for everybody who asks at about one time.

    The lines of a run are kept until it changes, or leaves.

    Args:
        look: returns the runs that are shown, those that are still as their marks say without
            a snapshot.
        telemetry: the aggregator's own figures.
        cache_seconds: for how long a rendering is given to others too; 0 for never.
        busy: says whether reports are taken right now, so that lines have to let them through.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self,
        look: Callable[[Mapping[Name, Mark]], Awaitable[Mapping[Name, Sight]]],
        telemetry: Telemetry,
        cache_seconds: float = 1.0,
        busy: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._telemetry = telemetry
        self._cache_seconds = cache_seconds
        self._busy = busy
        self._clock = clock
        self._written: dict[Name, _Written] = {}
        self._kept: dict[Format, _Rendered] = {}
        self._under_way: dict[Format, asyncio.Task[bytes]] = {}

    async def render(self, accept: str | None) -> tuple[bytes, str]:
        """Return a scrape's body and its content type for an `Accept` header."""
        chosen = negotiate(accept)
        kept = self._kept.get(chosen)
        if kept is not None and self._clock() - kept.since < self._cache_seconds:
            return kept.body, chosen.content_type
        if chosen not in self._under_way:
            self._under_way[chosen] = asyncio.create_task(self._render(chosen))
        # Shielded: a scraper that hangs up must not take the rendering from the others.
        return await asyncio.shield(self._under_way[chosen]), chosen.content_type

    async def _render(self, chosen: Format) -> bytes:
        since = self._clock()
        try:
            known = self._written
            sights = await self._look({name: written.mark for name, written in known.items()})
            self._written, body = await asyncio.to_thread(self._write, chosen, known, sights)
        finally:
            del self._under_way[chosen]
        if self._cache_seconds:
            self._kept[chosen] = _Rendered(body, since)
        return body

    def _write(
        self, chosen: Format, known: Mapping[Name, _Written], sights: Mapping[Name, Sight]
    ) -> tuple[dict[Name, _Written], bytes]:
        """Return the lines of all runs by name, new ones of those that changed, and the body."""
        written = {
            name: _Written(sight.mark, run_lines(sight.snapshot)) if sight.snapshot else known[name]
            for name, sight in _in_turns(sights.items(), self._busy)
        }
        gauges = document([run.lines for run in written.values()])
        self._telemetry.note_exported(count(gauges))
        own = CollectorRegistry()
        own.register(self._telemetry)
        return written, gauges + chosen.encode(own)


def _in_turns(items: Iterable[T], busy: Callable[[], bool]) -> Iterator[T]:
    """Yield items, with a rest now and then while others are busy: they must not be stopped.

    The interpreter makes each of their calls that gives its lock away wait for a whole interval.
    """
    turn = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - turn > TURN_SECONDS:
            if busy():
                time.sleep(REST_SECONDS)
            turn = time.perf_counter()
