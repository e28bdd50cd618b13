"""One mismatch of one ULP at one position on one rank: who hears of it, when, for how long."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import torch

import rankfold_client as rf
from e2e.faults.aggregator import wait_until
from support.prometheus import run

from .stage import OPENMETRICS, PATIENCE, TEXT, Stage

# Names that mean something to a URL, a shell and a template.
PROJECT, RUN, SERIES = "zero diff", 'it\'s "8b"+50% $1 ü', "training/rollout_logprobs"
LABELS = {"project": PROJECT, "run": RUN, "series": SERIES}
RANKS, ITERATIONS, MICROBATCHES, TOKENS = 2, 3, 2, 64


def play(folder: Path) -> float:
    """Go through it all and return the seconds from the mismatch's arrival to the webhook."""
    with Stage(folder) as stage, ExitStack() as closing:
        ranks = [
            closing.enter_context(
                rf.Reporter(RUN, project=PROJECT, url=stage.server.url, rank=rank, world_size=RANKS)
            )
            for rank in range(RANKS)
        ]
        _report_zero_differences(stage, ranks)
        seconds = _report_one_mismatch(stage, ranks[1])
        _fail_scrapes(stage)
        _restart(stage)
        _nothing_else_was_said(stage)
        _scrapes_were_clean(stage)
        return seconds


def _log_probs(rank: int, microbatch: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * rank + microbatch)
    return -5 * torch.rand(TOKENS, generator=generator)


def _report_zero_differences(stage: Stage, ranks: list[rf.Reporter]) -> None:
    """Let every rank report equal log-probs; once Prometheus has judged them, all is quiet."""
    for _ in range(ITERATIONS):
        for rank, reporter in enumerate(ranks):
            for microbatch in range(MICROBATCHES):
                a = _log_probs(rank, microbatch)
                reporter.compare(SERIES, a, a.clone())
            reporter.end_iteration()
    for reporter in ranks:
        assert reporter.flush(timeout=PATIENCE) == 0
    valid = RANKS * ITERATIONS * MICROBATCHES * TOKENS
    seen = f"rankfold_valid_positions == {valid}"
    wait_until(lambda: len(stage.prometheus.query(seen)) == 2, "all is scraped twice", PATIENCE)
    _wait_for_evaluation(stage)
    mismatches = _values(stage, "last_over_time(rankfold_mismatch_positions[1h])")
    assert [value for _, value in mismatches] == ["0", "0"]
    assert stage.prometheus.query('ALERTS{alertstate="firing"}') == []
    assert stage.alertmanager.alerts() == []
    assert stage.receiver.notifications == []


def _report_one_mismatch(stage: Stage, reporter: rf.Reporter) -> float:
    """Let one rank differ at one position by one ULP; return how long until somebody knew."""
    for microbatch in range(MICROBATCHES):
        a = _log_probs(1, microbatch)
        b = a.clone()
        if microbatch == 1:
            b[7] = torch.nextafter(b[7], torch.tensor(0.0))
        reporter.compare(SERIES, a, b)
    assert reporter.flush(timeout=PATIENCE) == 0
    arrived = stage.server.get(RUN, "", PROJECT)["last_report"]
    wait_until(lambda: stage.receiver.notifications, "the webhook is told", PATIENCE)
    (notification,) = stage.receiver.notifications
    _tells_what_and_where(stage, notification.body)
    _fired_within_two_scrapes(stage)
    return notification.at - arrived


def _tells_what_and_where(stage: Stage, body: dict[str, Any]) -> None:
    """Check what the webhook got: an alert, its labels, count, link and command."""
    (alert,) = body["alerts"]
    assert (body["receiver"], alert["status"]) == ("pager", "firing")
    assert alert["labels"] == LABELS | {"alertname": "RankfoldMismatch", "severity": "critical"}
    notes = alert["annotations"]
    assert notes["summary"] == f"{PROJECT}/{RUN}: mismatch count of {SERIES} is 1"
    where = httpx.get(notes["worst_url"], timeout=20).raise_for_status().json()
    assert [(item["rank"], item["microbatch"], item["ulp"]) for item in where["items"]] == [
        (1, 1, 1)
    ]
    command = ["rankfold", "worst", "--url", stage.server.url, "--project", PROJECT, RUN]
    assert shlex.split(notes["command"]) == command


def _fired_within_two_scrapes(stage: Stage) -> None:
    """Count the scrapes that had shown the mismatch when the alert was first true."""
    since = datetime.fromisoformat(_alert(stage)[0]).timestamp()
    for job in (OPENMETRICS, TEXT):
        shown = f'rankfold_mismatch_positions{{job="{job}"}}[1h]'
        (found,) = stage.prometheus.query(shown)
        before = [at for at, value in found["values"] if value == "1" and at <= since]
        assert len(before) <= 2


def _fail_scrapes(stage: Stage) -> None:
    """Let the aggregator hang for longer than a scrape waits."""
    with _stays(stage):
        stage.hang()
        stage.wait_until_scrapes(succeed=False)
        _wait_for_evaluation(stage)
        stage.go_on()
        stage.wait_until_scrapes(succeed=True)


def _restart(stage: Stage) -> None:
    """Kill the aggregator and start it again on its store."""
    with _stays(stage):
        stage.server.kill()
        stage.wait_until_scrapes(succeed=False)
        _wait_for_evaluation(stage)
        stage.server.start()
        stage.wait_until_scrapes(succeed=True)


def _nothing_else_was_said(stage: Stage) -> None:
    """Check that the one alert was told once, and that no other has fired at any time."""
    assert len(stage.receiver.notifications) == 1
    fired = stage.prometheus.query('count_over_time(ALERTS{alertstate="firing"}[1h])')
    assert [found["metric"]["alertname"] for found in fired] == ["RankfoldMismatch"]


def _scrapes_were_clean(stage: Stage) -> None:
    """Check that either format was scraped, and that Prometheus dropped and doubted nothing."""
    assert _type_of_build_info(stage, OPENMETRICS) == "info"
    assert _type_of_build_info(stage, TEXT) == "gauge"
    counters = '{__name__=~"prometheus_target_scrapes_.+_total"}'
    dropped = _values(stage, f"last_over_time({counters}[1h])")
    assert "prometheus_target_scrapes_sample_duplicate_timestamp_total" in dict(dropped)
    assert {value for _, value in dropped} == {"0"}
    assert re.findall("^.*level=(?:warn|error).*$", stage.prometheus.log, re.MULTILINE) == []
    checked = run("promtool", "check", "metrics", text=stage.server.client.get("/metrics").text)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def _type_of_build_info(stage: Stage, job: str) -> str:
    """Return the type that a job's scrapes give a family; only OpenMetrics has infos."""
    name = "rankfold_build" if job == OPENMETRICS else "rankfold_build_info"
    query = {"match_target": f'{{job="{job}"}}', "metric": name}
    (found,) = stage.prometheus.get("/api/v1/targets/metadata", **query)["data"]
    kind: str = found["type"]
    return kind


@contextmanager
def _stays(stage: Stage) -> Iterator[None]:
    """Check that the alert is the same one after something as before it: it never ended."""
    before = _alert(stage)
    yield
    _wait_for_evaluation(stage)
    assert _alert(stage) == before


def _alert(stage: Stage) -> tuple[str, str, str]:
    """Return since when the alert holds, as Prometheus and Alertmanager say, and its state."""
    (firing,) = (alert for alert in stage.prometheus.alerts() if alert["state"] == "firing")
    (held,) = stage.alertmanager.alerts()
    assert firing["labels"]["alertname"] == held["labels"]["alertname"] == "RankfoldMismatch"
    return firing["activeAt"], held["startsAt"], held["status"]["state"]


def _wait_for_evaluation(stage: Stage) -> None:
    """Wait until all rules have been evaluated from now on."""
    asked = datetime.now(UTC)

    def evaluated() -> bool:
        groups = stage.prometheus.get("/api/v1/rules")["data"]["groups"]
        return all(datetime.fromisoformat(group["lastEvaluation"]) > asked for group in groups)

    wait_until(evaluated, "the rules are evaluated", PATIENCE)


def _values(stage: Stage, expression: str) -> list[tuple[str, str]]:
    """Return the names and values that an expression has now."""
    return [
        (found["metric"]["__name__"], found["value"][1])
        for found in stage.prometheus.query(expression)
    ]
