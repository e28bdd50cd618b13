"""What the aggregator counts about itself: requests, receipts, commits, refusals, its queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rankfold import __version__
from rankfold.errors import (
    Forbidden,
    Inconsistent,
    MalformedBody,
    Overloaded,
    StoreDamaged,
    StoreUnavailable,
    TooLarge,
    Unauthenticated,
    UnsupportedMedia,
)
from rankfold.wire import Receipt

# A report takes about a millisecond where the disk is fast, a scrape of many runs a second.
REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# An fsync takes from some 100 us on flash to seconds on a disk that stalls.
COMMIT_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

OUTCOMES = ("accepted", "duplicate", "conflict")

# Why a report may be refused, as the codes of problem documents.
REASONS = tuple(
    error.code
    for error in (
        MalformedBody,
        Unauthenticated,
        Forbidden,
        TooLarge,
        UnsupportedMedia,
        Inconsistent,
        Overloaded,
        StoreUnavailable,
        StoreDamaged,
    )
)


class Telemetry(Collector):
    """The aggregator's figures about itself, on a registry of their own.

    Every label value that is known beforehand is there as 0 from the start: `increase()` does
    not see the step to a series' first value. Methods may be called from any thread.
    """

    def __init__(self, version: str = __version__) -> None:
        self._registry = registry = CollectorRegistry()
        build = Info("rankfold_build", "The running aggregator's version.", registry=registry)
        build.info({"version": version})
        self._requests = Counter(
            "rankfold_requests",
            "HTTP requests answered, by route template and status code.",
            ["route", "code"],
            registry=registry,
        )
        self._request_seconds = Histogram(
            "rankfold_request_duration_seconds",
            "From a request's first byte to its answer, by route template.",
            ["route"],
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )
        self._known: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._partials = Counter(
            "rankfold_partials",
            "Partials and scalars of the reports that were answered with 200, by what became "
            "of them: accepted, duplicate (counted before) or conflict (the first one stands).",
            ["outcome"],
            registry=registry,
        )
        self._outcomes = [self._partials.labels(outcome) for outcome in OUTCOMES]
        self._commit_seconds = Histogram(
            "rankfold_store_commit_duration_seconds",
            "How long the store took to make one commit durable; requests share commits.",
            buckets=COMMIT_BUCKETS,
            registry=registry,
        )
        self._queue = Gauge(
            "rankfold_queue_depth",
            "Reports that wait for a commit; near its limit, reports are refused with 429.",
            registry=registry,
        )
        self._rejected = Counter(
            "rankfold_rejected",
            "Requests refused, by the code of the problem document.",
            ["reason"],
            registry=registry,
        )
        for reason in REASONS:
            self._rejected.labels(reason)
        self._damaged = Gauge(
            "rankfold_damaged_runs",
            "Runs that this scrape leaves out because what the store has of them is damaged.",
            registry=registry,
        )
        self._exported = Gauge(
            "rankfold_exported_series",
            "Time series of runs in this scrape, the aggregator's own left out.",
            registry=registry,
        )

    def observe_request(self, route: str, code: int, seconds: float) -> None:
        """Count an answered request.

        Args:
            route: the route's template, never a path: each value is a time series for ever.
            code: the status of the answer.
            seconds: how long it took.
        """
        count, duration = self._known.get((route, code)) or self._learn(route, code)
        count.inc()
        duration.observe(seconds)

    def _learn(self, route: str, code: int) -> tuple[Counter, Histogram]:
        """Look a request's two series up once; the library takes a lock each time."""
        known = self._requests.labels(route, str(code)), self._request_seconds.labels(route)
        self._known[route, code] = known
        return known

    def count_receipt(self, receipt: Receipt) -> None:
        """Count what became of a report's partials and scalars."""
        accepted, duplicates, conflicts = self._outcomes
        accepted.inc(receipt.accepted)
        if receipt.duplicates:
            duplicates.inc(receipt.duplicates)
        if receipt.conflicts:
            conflicts.inc(receipt.conflicts)

    def observe_commit(self, seconds: float) -> None:
        """Note how long a commit took."""
        self._commit_seconds.observe(seconds)

    def reject(self, reason: str) -> None:
        """Count a refusal by its error's code."""
        self._rejected.labels(reason).inc()

    def watch_queue(self, depth: Callable[[], int]) -> None:
        """Ask `depth` at each scrape how many reports wait; it is called from a thread."""
        self._queue.set_function(depth)

    def watch_damaged(self, runs: Callable[[], int]) -> None:
        """Ask `runs` at each scrape how many it leaves out; it is called from a thread."""
        self._damaged.set_function(runs)

    def note_exported(self, series: int) -> None:
        """Note how many time series of runs the scrape at hand has."""
        self._exported.set(series)

    def collect(self) -> Iterator[Metric]:
        """Yield every family, without `_created` samples.

        The library can leave them out for the whole process only, which is not ours to decide;
        they would be a third more series that say nothing that the start time does not.
        """
        for metric in self._registry.collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric
