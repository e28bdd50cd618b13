"""What a scrape gets: the gauges of every run, from one snapshot, beside the aggregator's own.

A gauge is a double: an integer beyond 2**53 is rounded to the nearest double here and exact in
the API's answers. A value that does not exist is left out; it is neither 0 nor NaN, because
`NaN > 0` is false and an alert would sleep over it.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from rankfold.fold import Fold
from rankfold.gate import Gate
from rankfold.rules import Key, Rule
from rankfold_service.judge import RunSnapshot
from rankfold_service.telemetry import Telemetry

Labels = tuple[str, ...]

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


_OF_RULE: Mapping[Rule, str] = {
    Rule.SUM: "Keys folded by sum: the exact sum, rounded once to a double",
    Rule.MAX: "Keys folded by max: the largest value",
    Rule.MIN: "Keys folded by min: the smallest value",
    Rule.MEAN: "Keys folded by mean: weighted by positions or weights and divided once",
    Rule.LAST: "Keys folded by last: the newest value",
    Rule.STD: "Standard deviation of |a - b|, from the merged moments",
}

_OF_SERIES: Mapping[str, tuple[str, Callable[[Fold], int]]] = {
    "rankfold_mismatch_positions": (
        "Positions where trainer and rollout differ, over all attempts; never falls.",
        lambda fold: fold.count,
    ),
    "rankfold_nonfinite_positions": (
        "Mismatching positions whose |a - b| is NaN or infinite, over all attempts; never falls.",
        lambda fold: fold.nonfinite,
    ),
    "rankfold_valid_positions": (
        "Positions compared, those under the mask, over all attempts; never falls.",
        lambda fold: fold.valid,
    ),
}

_OF_RUN: Mapping[str, tuple[str, Callable[[RunSnapshot], float | None]]] = {
    "rankfold_conflicts": (
        "Identities reported again with other content, over all attempts; never falls.",
        lambda run: run.conflicts,
    ),
    "rankfold_run_iteration": ("The newest iteration reported.", lambda run: run.iteration),
    "rankfold_run_complete_iteration": (
        "The newest iteration that every expected rank committed and reported in full.",
        lambda run: run.complete_iteration,
    ),
    "rankfold_run_ranks_expected": (
        "Ranks of the latest attempt: its world size, or those seen where it is not known.",
        lambda run: run.ranks_expected,
    ),
    "rankfold_run_ranks_reporting": (
        "Ranks of the latest attempt that have reported.",
        lambda run: run.ranks_reporting,
    ),
    "rankfold_run_incomplete_iterations": (
        "Iterations that lack a rank, a commit or a microbatch; those in progress count too.",
        lambda run: run.incomplete_iterations,
    ),
    "rankfold_run_last_report_timestamp_seconds": (
        "When the last report of any rank arrived, in seconds since the epoch.",
        lambda run: run.last_report,
    ),
    "rankfold_run_finished": ("1 once the run is finished, else 0.", lambda run: run.finished),
}


def gauges(runs: Sequence[RunSnapshot]) -> Iterator[Metric]:
    """Yield every family of the runs, always all and in one order, samples sorted by label."""
    totals = _by_rule(runs, lambda run: run.keys)
    for rule, text in _OF_RULE.items():
        help_ = f"{text}, over the whole run and all attempts."
        yield _family(f"rankfold_{rule}_value", help_, "key", totals[rule])
    newest = _by_rule(runs, lambda run: run.iteration_keys)
    for rule in (Rule.SUM, Rule.MAX, Rule.MIN, Rule.MEAN):
        help_ = f"{_OF_RULE[rule]}, in the newest complete iteration."
        yield _family(f"rankfold_iteration_{rule}_value", help_, "key", newest[rule])
    folds = _folds(runs)
    for name, (help_, count) in _OF_SERIES.items():
        yield _family(name, help_, "series", {at: count(fold) for at, fold in folds.items()})
    for name, (help_, read) in _OF_RUN.items():
        yield _family(name, help_, None, _by_run(runs, read))
    help_ = "1 for the run's live verdict, 0 for the others."
    yield _family("rankfold_gate", help_, "status", _gates(runs))


def _by_rule(
    runs: Sequence[RunSnapshot], keys_of: Callable[[RunSnapshot], Sequence[Key]]
) -> Mapping[Rule, dict[Labels, float]]:
    found: defaultdict[Rule, dict[Labels, float]] = defaultdict(dict)
    for run in runs:
        for key in keys_of(run):
            if key.value is not None:
                found[key.rule][run.project, run.run, key.name] = key.value
    return found


def _folds(runs: Sequence[RunSnapshot]) -> dict[Labels, Fold]:
    return {
        (run.project, run.run, series): fold for run in runs for series, fold in run.series.items()
    }


def _by_run(
    runs: Sequence[RunSnapshot], read: Callable[[RunSnapshot], float | None]
) -> dict[Labels, float]:
    found = (((run.project, run.run), read(run)) for run in runs)
    return {labels: value for labels, value in found if value is not None}


def _gates(runs: Sequence[RunSnapshot]) -> dict[Labels, float]:
    return {(run.project, run.run, gate.value): run.gate is gate for run in runs for gate in Gate}


def _family(name: str, help_: str, label: str | None, values: Mapping[Labels, float]) -> Metric:
    names = ["project", "run", *([label] if label else [])]
    family = GaugeMetricFamily(name, help_, labels=names)
    for labels, value in sorted(values.items()):
        family.add_metric(labels, value)
    return family


class Scrape(Collector):
    """Collects one snapshot of the runs, then the aggregator's own figures."""

    def __init__(self, runs: Sequence[RunSnapshot], telemetry: Telemetry) -> None:
        self._runs = runs
        self._telemetry = telemetry

    def collect(self) -> Iterator[Metric]:
        """Yield every family; the runs' come first, so that their number is known."""
        families = list(gauges(self._runs))
        self._telemetry.note_exported(sum(len(family.samples) for family in families))
        yield from families
        yield from self._telemetry.collect()


class _Rendered(NamedTuple):
    """A body and the clock's reading when its snapshot was asked for."""

    body: bytes
    since: float


class Exposition:
    """Renders `/metrics`, off the event loop and once for everybody who asks at about one time.

    Args:
        snapshot: returns the runs that have not left `/metrics`.
        telemetry: the aggregator's own figures.
        cache_seconds: for how long a rendering is given to others too; 0 for never.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self,
        snapshot: Callable[[], Awaitable[Sequence[RunSnapshot]]],
        telemetry: Telemetry,
        cache_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._snapshot = snapshot
        self._telemetry = telemetry
        self._cache_seconds = cache_seconds
        self._clock = clock
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
            runs = await self._snapshot()
            body = await asyncio.to_thread(self._encode, chosen, runs)
        finally:
            del self._under_way[chosen]
        self._kept[chosen] = _Rendered(body, since)
        return body

    def _encode(self, chosen: Format, runs: Sequence[RunSnapshot]) -> bytes:
        registry = CollectorRegistry()
        registry.register(Scrape(runs, self._telemetry))
        return chosen.encode(registry)
