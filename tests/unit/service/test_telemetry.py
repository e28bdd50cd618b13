"""The aggregator's figures about itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.utils import floatToGoString

from rankfold import __version__
from rankfold.errors import RequestError, StoreUnavailable, Unavailable
from rankfold.wire import Receipt
from rankfold_service.telemetry import COMMIT_BUCKETS, REASONS, REQUEST_BUCKETS, Telemetry

Values = dict[tuple[str, ...], float]


def samples(families: Iterable[Metric], prefix: str = "") -> Values:
    """Return each sample by its name and label values, the labels ordered by name."""
    found: Values = {}
    for family in families:
        for sample in family.samples:
            if sample.name.startswith(prefix):
                labels = (sample.labels[name] for name in sorted(sample.labels))
                found[sample.name, *labels] = sample.value
    return found


def values(telemetry: Telemetry, prefix: str = "") -> Values:
    """Return the samples of a telemetry's families."""
    return samples(telemetry.collect(), prefix)


def counts(buckets: tuple[float, ...], below: float) -> list[int]:
    """Return the cumulative bucket counts of one observation."""
    return [int(bound >= below) for bound in (*buckets, math.inf)]


def bucket_counts(telemetry: Telemetry, name: str) -> list[float]:
    """Return a histogram's cumulative counts in the order of its buckets."""
    return [
        sample.value
        for metric in telemetry.collect()
        for sample in metric.samples
        if sample.name == f"{name}_bucket"
    ]


def test_telemetry_starts_with_every_known_label_value_at_zero() -> None:
    """A first increase is seen, because the series was there as 0 before."""
    known: Values = {("rankfold_rejected_total", reason): 0.0 for reason in REASONS}
    for outcome in ("accepted", "duplicate", "conflict"):
        known["rankfold_partials_total", outcome] = 0.0
    for bound in map(floatToGoString, (*COMMIT_BUCKETS, math.inf)):
        known["rankfold_store_commit_duration_seconds_bucket", bound] = 0.0
    assert values(Telemetry()) == known | {
        ("rankfold_build_info", __version__): 1.0,
        ("rankfold_store_commit_duration_seconds_count",): 0.0,
        ("rankfold_store_commit_duration_seconds_sum",): 0.0,
        ("rankfold_queue_depth",): 0.0,
        ("rankfold_damaged_runs",): 0.0,
        ("rankfold_exported_series",): 0.0,
    }


def test_reasons_are_the_codes_that_refuse_a_report() -> None:
    """Each refusal of a request has its series; a read's `not_found` refuses no report."""
    codes = {
        error.code for error in (*RequestError.__subclasses__(), *Unavailable.__subclasses__())
    }
    codes |= {error.code for error in StoreUnavailable.__subclasses__()}
    assert set(REASONS) == codes - {"not_found"}


def test_observe_request_counts_by_route_and_code() -> None:
    """Requests are counted per route and code, their time per route."""
    telemetry = Telemetry()
    telemetry.observe_request("/api/v1/partials", 200, 0.004)
    telemetry.observe_request("/api/v1/partials", 200, 0.25)
    telemetry.observe_request("/api/v1/partials", 422, 0.5)
    assert values(telemetry, "rankfold_requests") == {
        ("rankfold_requests_total", "200", "/api/v1/partials"): 2.0,
        ("rankfold_requests_total", "422", "/api/v1/partials"): 1.0,
    }
    seconds = values(telemetry, "rankfold_request_duration_seconds")
    assert seconds["rankfold_request_duration_seconds_count", "/api/v1/partials"] == 3.0
    assert seconds["rankfold_request_duration_seconds_sum", "/api/v1/partials"] == 0.754


def test_observe_request_falls_into_its_buckets() -> None:
    """A bucket counts what took as long as its bound or less."""
    telemetry = Telemetry()
    telemetry.observe_request("/metrics", 200, 0.005)
    found = bucket_counts(telemetry, "rankfold_request_duration_seconds")
    assert found == counts(REQUEST_BUCKETS, 0.005)


def test_count_receipt_adds_up_the_outcomes() -> None:
    """What became of partials is counted over all receipts."""
    telemetry = Telemetry()
    telemetry.count_receipt(Receipt(accepted=5, duplicates=2, conflicts=1))
    telemetry.count_receipt(Receipt(accepted=1))
    assert values(telemetry, "rankfold_partials") == {
        ("rankfold_partials_total", "accepted"): 6.0,
        ("rankfold_partials_total", "duplicate"): 2.0,
        ("rankfold_partials_total", "conflict"): 1.0,
    }


def test_observe_commit_falls_into_its_buckets() -> None:
    """A stalled disk shows as commits in the high buckets."""
    telemetry = Telemetry()
    telemetry.observe_commit(0.3)
    found = bucket_counts(telemetry, "rankfold_store_commit_duration_seconds")
    assert found == counts(COMMIT_BUCKETS, 0.3)


def test_reject_counts_by_reason() -> None:
    """Refusals are counted under their error's code."""
    telemetry = Telemetry()
    telemetry.reject("overloaded")
    telemetry.reject("overloaded")
    telemetry.reject("too_large")
    nonzero = {k: v for k, v in values(telemetry, "rankfold_rejected").items() if v}
    assert nonzero == {
        ("rankfold_rejected_total", "overloaded"): 2.0,
        ("rankfold_rejected_total", "too_large"): 1.0,
    }


@pytest.mark.parametrize(
    ("watch", "name"),
    [
        (Telemetry.watch_queue, "rankfold_queue_depth"),
        (Telemetry.watch_damaged, "rankfold_damaged_runs"),
    ],
)
def test_what_is_watched_is_asked_for_at_each_scrape(
    watch: Callable[[Telemetry, Callable[[], int]], None], name: str
) -> None:
    """The number is the one of the moment, not the one of the last change."""
    telemetry = Telemetry()
    waiting: list[int] = []
    watch(telemetry, lambda: len(waiting))
    found = []
    for _ in range(3):
        found.append(values(telemetry, name))
        waiting.append(1)
    assert found == [{(name,): float(depth)} for depth in (0, 1, 2)]


def test_note_exported_shows_the_latest_number() -> None:
    """The number of exported series may fall, as runs leave."""
    telemetry = Telemetry()
    telemetry.note_exported(40_000)
    telemetry.note_exported(12)
    assert values(telemetry, "rankfold_exported_series") == {("rankfold_exported_series",): 12.0}


def test_two_telemetries_share_nothing() -> None:
    """Figures belong to one aggregator, not to the process."""
    one, other = Telemetry("1"), Telemetry("2")
    one.reject("too_large")
    assert values(one, "rankfold_rejected")["rankfold_rejected_total", "too_large"] == 1.0
    assert values(other, "rankfold_rejected")["rankfold_rejected_total", "too_large"] == 0.0
    assert values(other, "rankfold_build") == {("rankfold_build_info", "2"): 1.0}


@pytest.mark.parametrize(
    ("generate", "parse"),
    [(generate_latest, parse_text), (generate_openmetrics, parse_openmetrics)],
    ids=["text", "openmetrics"],
)
def test_telemetry_renders_and_parses_back_without_created_samples(
    generate: Callable[[CollectorRegistry], bytes], parse: Callable[[str], list[Metric]]
) -> None:
    """Both formats are valid and say what `collect` says."""
    telemetry = Telemetry()
    telemetry.observe_request("/metrics", 200, 0.1)
    registry = CollectorRegistry()
    registry.register(telemetry)
    text = generate(registry).decode()
    assert samples(parse(text)) == values(telemetry)
    assert "_created" not in text


def test_telemetry_families_are_prefixed_and_explained() -> None:
    """Every family says in a sentence what it is."""
    for metric in Telemetry().collect():
        assert metric.name.startswith("rankfold_")
        assert metric.documentation.endswith(".")
