"""The dashboard *Aggregator*: what it takes in, how fast, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, units
from grafana_foundation_sdk.models import dashboard as model

from rankfold_deploy.dashboards.frame import chosen, filled, framed, several
from rankfold_deploy.dashboards.panels import About, graph, query, stat, steps
from rankfold_deploy.dashboards.promql import INSTANCES, once, per_second, quantile

QUANTILES = ((0.5, "p50"), (0.99, "p99"))


def aggregator() -> build.Dashboard:
    """Return the dashboard *Aggregator*."""
    dashboard = framed(
        "rankfold-aggregator",
        "Rankfold / Aggregator",
        "The aggregator itself: reports in, commits, refusals, and the size of its scrapes.",
        [
            several(chosen("job", "rankfold_build_info")),
            several(chosen("instance", "rankfold_build_info", "job=~`${job:regex}`")),
        ],
    )
    return filled(
        dashboard,
        [
            ("Now", list(_now())),
            ("Reports", list(_reports())),
            ("Store", list(_store())),
            ("Size", list(_size())),
        ],
    )


def _now() -> Iterator[Builder[model.Panel]]:
    about = About(
        "Instances up",
        units.NoUnit,
        "Instances whose last scrape succeeded. Trainers keep what they cannot deliver.",
        "none is scraped",
    )
    up = f"sum(up{{{INSTANCES}}})"
    yield stat(about, query(up), width=4).thresholds(steps((None, "red"), (1, "green")))
    about = About("Version", units.NoUnit, "How many instances run which version.")
    version = f"count by (version) (rankfold_build_info{{{INSTANCES}}})"
    yield stat(about, query(version, "{{version}}"), width=4).text_mode(
        common.BigValueTextMode.VALUE_AND_NAME
    )
    about = About("Runs exported", units.LocaleFormat, "Runs that have not left /metrics.")
    yield stat(
        about,
        query(f"count({once('rankfold_run_finished', INSTANCES, 'project', 'run')})"),
        width=4,
    )
    about = About(
        "Time series exported",
        units.LocaleFormat,
        "Of runs, per instance at most; the aggregator's own are left out.",
    )
    yield stat(about, query(f"max(rankfold_exported_series{{{INSTANCES}}})"), width=4)
    about = About(
        "Queue", units.LocaleFormat, "Reports that wait for a commit, over all instances."
    )
    yield stat(about, query(f"sum(rankfold_queue_depth{{{INSTANCES}}})"), width=4)
    about = About(
        "Refused per second",
        units.CountsPerSecond,
        "Requests refused, whatever the reason.",
    )
    refused = f"sum(rate(rankfold_rejected_total{{{INSTANCES}}}[$__rate_interval]))"
    yield stat(about, query(refused), width=4).thresholds(steps((None, "green"), (0.001, "red")))


def _reports() -> Iterator[Builder[model.Panel]]:
    about = About(
        "Ingest by outcome",
        units.CountsPerSecond,
        "Partials and scalars per second: accepted, duplicate (counted before; retries make them) "
        "or conflict (the first report stands).",
    )
    ingest = per_second("rankfold_partials_total", INSTANCES, "outcome")
    yield graph(about, query(ingest, "{{outcome}}"))
    about = About(
        "Refused by reason",
        units.CountsPerSecond,
        "Requests refused per second, by the code of the problem document. `overloaded`, "
        "`store_unavailable` and `store_damaged` are sent again by clients; the others are "
        "mistakes.",
    )
    yield graph(
        about, query(per_second("rankfold_rejected_total", INSTANCES, "reason"), "{{reason}}")
    )
    about = About(
        "Requests by code",
        units.RequestsPerSecond,
        "Requests answered per second, by route and status.",
    )
    answered = per_second("rankfold_requests_total", INSTANCES, "route", "code")
    yield graph(about, query(answered, "{{route}} {{code}}"))
    about = About(
        "Latency of requests",
        units.Seconds,
        "From a request's first byte to its answer, by route; of a report, durable writing "
        "included.",
    )
    yield graph(
        about,
        *(
            query(
                quantile(share, "rankfold_request_duration_seconds", INSTANCES, "route"),
                f"{{{{route}}}} {name}",
                name,
            )
            for share, name in QUANTILES
        ),
    )


def _store() -> Iterator[Builder[model.Panel]]:
    commit = "rankfold_store_commit_duration_seconds"
    about = About(
        "Commits",
        units.CountsPerSecond,
        "Commits per second, by instance. Reports that wait together share one.",
    )
    commits = per_second(f"{commit}_count", INSTANCES, "instance")
    yield graph(about, query(commits, "{{instance}}"), width=8)
    about = About(
        "Latency of commits",
        units.Seconds,
        "How long the store took to make a commit durable.",
        "no commit in this time",
    )
    yield graph(
        about,
        *(query(quantile(share, commit, INSTANCES), name, name) for share, name in QUANTILES),
        width=8,
    )
    about = About(
        "Queue",
        units.LocaleFormat,
        "Reports that wait for a commit, by instance. Near its limit, reports are refused with "
        "429.",
    )
    depth = f"max by (instance) (rankfold_queue_depth{{{INSTANCES}}})"
    yield graph(about, query(depth, "{{instance}}"), width=8)


def _size() -> Iterator[Builder[model.Panel]]:
    about = About(
        "Time series exported",
        units.LocaleFormat,
        "Time series of runs in a scrape, by instance. A finished or stale run leaves after a "
        "while that is set.",
    )
    exported = f"max by (instance) (rankfold_exported_series{{{INSTANCES}}})"
    yield graph(about, query(exported, "{{instance}}"))
    about = About(
        "Duration of scrapes",
        units.Seconds,
        "How long Prometheus waited for a scrape, by instance.",
    )
    scrape = f"max by (instance) (scrape_duration_seconds{{{INSTANCES}}})"
    yield graph(about, query(scrape, "{{instance}}"))
