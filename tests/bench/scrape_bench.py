"""Scrapes of 40,000 series of 1,000 runs, beside peers that hold the same, and what they delay.

The peers are the client library's own gauges, and Pushgateway where it is installed. They only
hold values; we read them from folds, of those runs that changed since the last scrape.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families
from tests.bench import load
from tests.bench.load import Load, Outcome, Target, receipt
from tests.bench.processes import RESULTS, cpu_seconds, launched
from tests.bench.workload import differences, request
from tests.support.postgres import Postgres
from tests.support.server import Server, free_port

from rankfold.partial import PartialColumns
from rankfold.rules import Rule, RuleSet
from rankfold.wire import Commit, Receipt, Report, ScalarColumns
from rankfold_service.store import Arrival
from rankfold_service.store.opening import open_store

RUNS = 1_000
RANKS = 8
SERIES = tuple(f"training/{name}_logprobs" for name in ("rollout", "reference", "old"))
MICROBATCHES = 4
BATCH = MICROBATCHES * len(SERIES)
VALID = 4096
# Iterations that the store has before anything is measured.
FILLED = 2
ROUNDS = 7
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}
EVERY = 1.0  # seconds from one scrape to the next, while reports come
WINDOW = 3.0  # seconds of reports without or with scrapes
# Long enough for the tables to be brought up to date meanwhile, which takes its share.
MOST_OF = 12_000

GATEWAY = "prometheus-pushgateway"
GATEWAY_FLAGS = ("--persistence.file=", "--push.disable-consistency-check", "--log.level=error")

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    parser.add_argument("--postgresql", action="store_true", help="in place of SQLite")


def run(*, quick: bool = False, postgresql: bool = False) -> list[dict[str, Any]]:
    """Return a row for each kind of scrape, and two for the reports beside them."""
    rounds = 3 if quick else ROUNDS
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(dir=RESULTS.resolve())))
        url = f"sqlite:///{folder}/bench.db"
        if postgresql:
            database = stack.enter_context(Postgres(shared_buffers="256MB", max_wal_size="4GB"))
            url = database.url(database.create_database())
        _fill(url)
        generator = stack.enter_context(load.generator())
        server = stack.enter_context(Server(url, "--scrape-cache", "0"))
        bench = _Bench(server, generator)
        # As in a server that has been up for an iteration: what a scrape reads is in memory.
        bench.report(RUNS * RANKS)
        rows = _scrapes(bench, folder, rounds)
        if not shutil.which(GATEWAY):
            rows.append({"scrape": f"Pushgateway: not installed: apt-get install {GATEWAY}"})
        return rows + _beside(bench, 2 if quick else 6)


def _fill(url: str) -> None:
    """Make a store in which every rank of every run has reported and committed iterations."""
    store = open_store(url, RuleSet())
    for first in range(0, FILLED * RANKS * RUNS, RUNS):
        reports = [_report(number) for number in range(first, first + RUNS)]
        outcomes = store.ingest([Arrival(report, time.time()) for report in reports])
        assert all(isinstance(outcome, Receipt) for outcome in outcomes), outcomes[0]
        store.maintain()
    store.close()


def _place(number: int) -> tuple[str, int, int]:
    """Return run, rank and iteration of a report: runs take turns, then their ranks."""
    return f"run-{number % RUNS:04}", number // RUNS % RANKS, number // RUNS // RANKS


def _columns(number: int) -> dict[str, list[Any]]:
    iteration = _place(number)[2]
    numbers = differences(np.random.default_rng(number), BATCH, VALID)
    return {
        "series": list(SERIES) * MICROBATCHES,
        "iteration": [iteration] * BATCH,
        "microbatch": [m for m in range(MICROBATCHES) for _ in SERIES],
        **numbers,
    }


def _report(number: int) -> Report:
    name, rank, iteration = _place(number)
    loss = ScalarColumns(["loss"], [iteration], [0], [0.5 + rank], [1], [Rule.MEAN], [False])
    partials = PartialColumns(**_columns(number), nonfinite=[0] * BATCH)
    commits = [Commit(iteration, MICROBATCHES)]
    return Report(name, rank, world_size=RANKS, partials=partials, scalars=loss, commits=commits)


def _request(number: int) -> bytes:
    name, rank, iteration = _place(number)
    commit = {"iteration": iteration, "microbatches": MICROBATCHES}
    head = {"run": name, "rank": rank, "world_size": RANKS}
    return request(head | {"partials": _columns(number), "commits": [commit]})


def _send(target: Target, numbers: range, rate: float | None) -> Outcome:
    """Send reports; in the generator's process."""
    requests = list(map(_request, numbers))
    with Load(target.port) as connections:
        return load.measure(connections, target.pid, requests, receipt(BATCH), rate)


class _Bench:
    """A server, and reports for it of which no two are alike."""

    def __init__(self, server: Server, generator: ProcessPoolExecutor) -> None:
        assert server.process is not None
        self.url, self.pid = server.url, server.process.pid
        self._target = Target(server.port, self.pid)
        self._generator = generator
        self._next = FILLED * RANKS * RUNS

    def report(self, how_many: int, rate: float | None = None) -> Outcome:
        """Send the next reports, one to each run in turn, and return what they saw."""
        numbers = range(self._next, self._next + how_many)
        self._next += how_many
        return self._generator.submit(_send, self._target, numbers, rate).result()


class _Cost(NamedTuple):
    """What a scrape took: seconds until it was read, and processor time of the server."""

    seconds: float
    cpu: float


@dataclass(frozen=True)
class _Scraper:
    """Scrapes a server."""

    url: str
    pid: int
    headers: dict[str, str] = field(default_factory=dict)

    def scrape(self) -> bytes:
        """Return a scrape's body."""
        # A connection for each: servers close those that were idle while others had their turn.
        with closing(HTTPConnection(self.url.removeprefix("http://"), timeout=60)) as connection:
            connection.request("GET", "/metrics", headers=self.headers)
            answer = connection.getresponse()
            body = answer.read()
        assert answer.status == 200, body
        return body

    def cost(self) -> _Cost:
        """Return what a scrape takes."""
        cpu, started = cpu_seconds(self.pid), time.perf_counter()
        self.scrape()
        return _Cost(time.perf_counter() - started, cpu_seconds(self.pid) - cpu)


def _scrapes(bench: _Bench, folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Measure every kind of scrape, ours and the peers' in turn, once they say the same."""
    costs: defaultdict[str, list[_Cost]] = defaultdict(list)
    text = _Scraper(bench.url, bench.pid)
    openmetrics = replace(text, headers=OPENMETRICS)
    with ExitStack() as stack:
        body = text.scrape()
        peers = dict(_peers(stack, folder, body))
        ours = _samples(body)
        for name, peer in peers.items():
            assert _samples(peer.scrape()) == ours, f"{name} says something else"
        for _ in range(rounds):
            for name, peer in peers.items():
                costs[name].append(peer.cost())
            costs["no run changed"].append(text.cost())
            costs["no run changed, OpenMetrics"].append(openmetrics.cost())
            for name, changed in (("every tenth run changed", 10), ("every run changed", 1)):
                bench.report(RUNS // changed)
                costs[name].append(text.cost())
    return _table(costs, list(peers), len(ours))


def _peers(stack: ExitStack, folder: Path, body: bytes) -> Iterator[tuple[str, _Scraper]]:
    """Start what is there of the peers, fill it with a scrape's gauges and yield its scraper."""
    (folder / "scrape").write_bytes(body)
    port = str(free_port())
    library = [sys.executable, "-m", "tests.bench.gauges_app", port, str(folder / "scrape")]
    url = f"http://127.0.0.1:{port}"
    pid = stack.enter_context(launched(library, url))
    yield "client library", _Scraper(url, pid)
    yield "client library, OpenMetrics", _Scraper(url, pid, OPENMETRICS)
    if shutil.which(GATEWAY):
        url = f"http://127.0.0.1:{free_port()}"
        address = f"--web.listen-address={url.removeprefix('http://')}"
        command = [GATEWAY, address, *GATEWAY_FLAGS]
        pid = stack.enter_context(launched(command, f"{url}/-/ready"))
        _push(url, body.decode())
        yield "Pushgateway", _Scraper(url, pid)


def _push(url: str, text: str) -> None:
    """Give the gauges of each run to a Pushgateway, as a group of its own."""
    runs: defaultdict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        name, labelled, rest = line.partition('{project="default",run="')
        if labelled and not line.startswith("#"):
            at, _, more = rest.partition('"')
            head = f"# TYPE {name} gauge\n"
            seen = head in runs[at]
            runs[at] += [*([] if seen else [head]), f"{name}{{{more.removeprefix(',')}\n"]
    with httpx.Client(base_url=url, timeout=60) as client:
        for at, lines in runs.items():
            path = f"/metrics/job/rankfold/project/default/run/{quote(at)}"
            client.put(path, content="".join(lines)).raise_for_status()


def _samples(body: bytes) -> Samples:
    """Return the gauges of runs in a scrape, without what Pushgateway adds."""
    text = body.decode().removesuffix("# EOF\n")
    return {
        (
            sample.name,
            frozenset(s for s in sample.labels.items() if s[0] not in ("job", "instance")),
        ): (sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "run" in sample.labels and sample.name.startswith("rankfold_")
    }


def _table(costs: dict[str, list[_Cost]], peers: list[str], series: int) -> list[dict[str, Any]]:
    medians = {name: 1e3 * median(cost.seconds for cost in of) for name, of in costs.items()}
    return [
        {
            "scrape": name,
            "series": series,
            "ms": round(medians[name], 1),
            # A mean, because the system counts processor time in hundredths of a second.
            "cpu ms": round(1e3 * mean(cost.cpu for cost in of), 1),
            **{f"times {peer}": round(medians[peer] / medians[name], 1) for peer in peers},
        }
        for name, of in costs.items()
    ]


def _beside(bench: _Bench, rounds: int) -> list[dict[str, Any]]:
    """Return what reports at half load wait for, without scrapes and with one a second.

    They go to every run, so that every scrape finds every run changed.
    """
    rate = bench.report(MOST_OF).rate / 2
    alone, scraped = [], []
    seconds: list[float] = []

    def without() -> None:
        alone.append(bench.report(int(WINDOW * rate), rate))

    def with_scrapes() -> None:
        with _scraped_often(_Scraper(bench.url, bench.pid), seconds):
            scraped.append(bench.report(int(WINDOW * rate), rate))

    for number in range(rounds):
        # In turn first, since what was written before is brought to the tables in the next.
        for window in (without, with_scrapes)[:: -1 if number % 2 else 1]:
            window()
    rows = [_waits("reports without scrapes", alone), _waits("reports, a scrape a second", scraped)]
    for name in ("p50 ms", "p99 ms"):
        rows[1][f"ratio of {name}"] = round(rows[1][name] / rows[0][name], 2)
    rows[1]["ms"] = round(1e3 * median(seconds), 1)
    return rows


@contextmanager
def _scraped_often(scraper: _Scraper, seconds: list[float]) -> Iterator[None]:
    """Scrape once a second meanwhile, and note how long each took."""
    over = threading.Event()

    def scrape_on() -> None:
        started = time.monotonic()
        for number in count(1):
            seconds.append(scraper.cost().seconds)
            if over.wait(max(0.0, started + number * EVERY - time.monotonic())):
                return

    thread = threading.Thread(target=scrape_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _waits(name: str, outcomes: list[Outcome]) -> dict[str, Any]:
    return {
        "scrape": name,
        "reports/s": round(median(o.rate for o in outcomes)),
        "p50 ms": round(1e3 * median(o.quantile(0.5) for o in outcomes), 2),
        "p99 ms": round(1e3 * median(o.quantile(0.99) for o in outcomes), 2),
        "worst ms": round(1e3 * max(max(o.latencies) for o in outcomes), 1),
    }
