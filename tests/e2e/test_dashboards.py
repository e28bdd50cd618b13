"""Every query of every dashboard, asked of the real Prometheus: the demo and a run of odd names."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest
import torch

import rankfold_client as rf
from rankfold_deploy.dashboards import DASHBOARDS
from rankfold_deploy.dashboards.promql import GATES
from support.grafana import ALL, Query, Time, Values, load, queries, substituted, variables
from support.prometheus import Prometheus, needs_prometheus

DEMO = [sys.executable, "-m", "rankfold_service.cli.main", "demo", "--keep", "--iterations", "1"]
DEMO_PROJECT, DEMO_RUN, DEMO_SERIES = "demo", "float32", "training/rollout_logprobs"
# Of everything that names may hold, what means something to PromQL, Go, JSON, Grafana or URLs.
ODD_PROJECT = 'it\'s (a) "project"'
ODD_RUN = "a.b*c+d?e|f^g$h\\i{j}[k]&l=m#n%20o ${run} ü"
ODD_SERIES = ("odd/a.b(c)", "odd/aXb(c)", "odd/\\\"'|$")
RULES = ("sum", "mean", "max", "min", "last")
SECONDS = 60.0

pytestmark = needs_prometheus


class Stage(NamedTuple):
    """A Prometheus that has scraped two replicas, and the aggregator behind both."""

    prometheus: httpx.Client
    aggregator: httpx.Client
    time: Time

    def ask(self, path: str, parameters: Mapping[str, Any]) -> Any:
        """Return the data that Prometheus answers, without a warning."""
        answer = self.prometheus.get(path, params=parameters).json()
        assert answer["status"] == "success", answer
        assert "warnings" not in answer, answer
        return answer["data"]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Yield the stage after the demo and the odd run have ended and were scraped."""
    with subprocess.Popen(DEMO, stdout=subprocess.PIPE, text=True) as demo:
        try:
            url = read_until(demo, "aggregator")[-1].split()[1]
            with (
                Prometheus(tmp_path_factory.mktemp("prometheus"), config(url)) as prometheus,
                httpx.Client(base_url=url, timeout=20, trust_env=False) as aggregator,
                httpx.Client(base_url=prometheus.url, timeout=20, trust_env=False) as asked,
            ):
                start = time.time()
                read_on = threading.Thread(target=read_until, args=(demo, "The aggregator stays"))
                read_on.start()
                odd_run(url, aggregator)
                read_on.join()
                wait_for(lambda: scraped_to_the_end(prometheus))
                yield Stage(asked, aggregator, Time(start, time.time()))
        finally:
            demo.terminate()


def read_until(process: subprocess.Popen[str], beginning: str) -> list[str]:
    """Return the lines that a process prints, up to one that begins like this."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(beginning):
            return lines
    raise AssertionError("".join(lines))


def config(url: str) -> dict[str, Any]:
    """Return a configuration that scrapes the aggregator as if it were two of them."""
    address = url.removeprefix("http://")
    replicas = [{"targets": [address], "labels": {"replica": name}} for name in "ab"]
    job = {"job_name": "rankfold", "static_configs": replicas}
    return {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}


def odd_run(url: str, aggregator: httpx.Client) -> None:
    """Report a run whose names are odd: mismatches, non-finite ones, scalars of every rule."""
    reporter = rf.Reporter(ODD_RUN, project=ODD_PROJECT, url=url, rank=0, world_size=1)
    ours = torch.tensor([[-0.1, -2.5, -0.7]])
    theirs = torch.tensor([[-0.1, -2.4, math.nan]])
    for _ in range(3):
        for series in ODD_SERIES:
            reporter.compare(series, ours, theirs)
        for rule in RULES:
            reporter.scalar(f"odd {rule} (%)", 0.25, rule=rule)
        reporter.end_iteration()
    assert reporter.close() == 0
    partial = {"series": ODD_SERIES[0], "iteration": 0, "microbatch": 0, "count": 0, "valid": 3}
    report = {"run": ODD_RUN, "project": ODD_PROJECT, "rank": 0, "world_size": 1}
    body = {**report, "partials": [{**partial, "max": 0.0, "sum": 0.0}]}
    receipt = aggregator.post("/api/v1/partials", json=body).json()
    assert receipt["conflicts"] == 1


def scraped_to_the_end(prometheus: Prometheus) -> bool:
    """Say whether both replicas' scrapes show both runs finished."""
    return len(prometheus.query("rankfold_run_finished == 1")) == 2 * 2


def wait_for(condition: Callable[[], bool]) -> None:
    """Return when the condition holds."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def ask(stage: Stage, query: Query, values: Values) -> list[dict[str, Any]]:
    """Return what Prometheus answers to a panel's query, as Grafana asks it."""
    start, end, step, _ = stage.time
    asked = {"query": substituted(query.expression, values, stage.time)}
    if query.instant:
        data = stage.ask("/api/v1/query", {**asked, "time": end})
    else:
        data = stage.ask("/api/v1/query_range", {**asked, "start": start, "end": end, "step": step})
    result: list[dict[str, Any]] = data["result"]
    return result


def numbers(series: dict[str, Any]) -> list[float]:
    """Return the finite values of a series of a result."""
    pairs = series["values"] if "values" in series else [series["value"]]
    return [number for _, text in pairs if math.isfinite(number := float(text))]


CHOICES: dict[str, Values] = {
    "demo": {
        "project": DEMO_PROJECT,
        "run": DEMO_RUN,
        "series": [ALL],
        "job": [ALL],
        "instance": [ALL],
    },
    "odd": {
        "project": ODD_PROJECT,
        "run": ODD_RUN,
        "series": list(ODD_SERIES),
        "job": ["rankfold"],
        "instance": [ALL],
    },
}
# The demo's scalars are means only; the odd run has every rule.
NOT_IN_DEMO = {f"Scalars: {rule}" for rule in RULES} - {"Scalars: mean"}


@pytest.mark.parametrize("choice", CHOICES)
def test_every_query_answers(stage: Stage, choice: str) -> None:
    """No query is refused, and each has numbers to show."""
    asked = [query for uid in DASHBOARDS for query in queries(load(uid))]
    empty = [
        str(query)
        for query in asked
        if choice == "odd" or query.panel not in NOT_IN_DEMO
        if not any(numbers(series) for series in ask(stage, query, CHOICES[choice]))
    ]
    assert len(asked) > 50
    assert empty == []


@pytest.mark.parametrize("choice", CHOICES)
def test_variables_offer_what_there_is(stage: Stage, choice: str) -> None:
    """Each variable's query finds the values that the next one is chosen with."""
    values = CHOICES[choice]
    for uid in DASHBOARDS:
        for name, (selector, label) in variables(load(uid)).items():
            match = substituted(selector, values, stage.time)
            offered = set(stage.ask(f"/api/v1/label/{label}/values", {"match[]": match}))
            chosen = values[name]
            wanted = {chosen} if isinstance(chosen, str) else set(chosen) - {ALL}
            assert offered
            assert offered >= wanted


def test_two_replicas_show_what_one_shows(stage: Stage) -> None:
    """The table of runs has one row per run, with the API's own numbers."""
    expected = {
        (project, run): row_of(stage, project, run)
        for project, run in ((DEMO_PROJECT, DEMO_RUN), (ODD_PROJECT, ODD_RUN))
    }
    values = {"project": [ALL]}
    found: dict[tuple[str, str], dict[str, float]] = {key: {} for key in expected}
    for query in queries(load("rankfold-runs")):
        if query.panel == "Runs":
            for series in ask(stage, query, values):
                labels = series["metric"]
                row = found[labels.pop("project"), labels.pop("run")]
                assert labels == {}
                assert query.name not in row
                (row[query.name],) = numbers(series)
    assert {key: {**row, **expected[key]} for key, row in found.items()} == found
    assert expected[ODD_PROJECT, ODD_RUN]["nonfinite"] == 9
    assert expected[DEMO_PROJECT, DEMO_RUN]["mismatches"] > 0


def row_of(stage: Stage, project: str, run: str) -> dict[str, float]:
    """Return what the API says of a run, by the names of the table's columns."""
    path = f"/api/v1/projects/{quote(project, safe='')}/runs/{quote(run, safe='')}/gate"
    answer = stage.aggregator.get(path, params={"live": "true"})
    assert answer.status_code == 200, answer.text
    gate = answer.json()
    series = gate["series"].values()
    return {
        "gate": GATES[gate["gate"]],
        "mismatches": sum(one["mismatch_count"] for one in series),
        "nonfinite": sum(one["nonfinite_count"] for one in series),
        "compared": sum(one["valid_count"] for one in series),
        "conflicts": gate["conflicts"],
        "complete": gate["iterations"]["last"],
        "expected": gate["ranks"]["expected"],
        "reporting": gate["ranks"]["reporting"],
        "finished": 1,
    }


def test_a_run_that_has_left_keeps_its_row(stage: Stage) -> None:
    """Where a run is exported no more, the table shows it as it was last."""
    later = stage._replace(time=Time(stage.time.start - 3600, stage.time.end + 3600))
    for query in queries(load("rankfold-runs")):
        if query.panel == "Runs":
            answer = ask(later, query, {"project": [ALL]})
            assert {series["metric"]["run"] for series in answer} == {DEMO_RUN, ODD_RUN}
