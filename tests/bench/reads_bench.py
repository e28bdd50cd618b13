"""Reads against history length: what a total or a scrape costs must not grow with a run.

The long history has 6.4 million partials; filling it takes minutes. `--quick` has a shorter one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from tests.bench.processes import RESULTS
from tests.support.server import Server

from rankfold.partial import PartialColumns
from rankfold.rules import RuleSet
from rankfold.wire import Commit, Receipt, Report
from rankfold_service.store import Arrival
from rankfold_service.store.sqlite import SqliteStore

RUN = "history"
SERIES = "training/rollout_logprobs"
RANKS = 64
MICROBATCHES = 1
BLOCK = 50
HISTORIES = (1_000, 100_000)
QUICK = (1_000, 4_000)
ROUNDS = 40

Read = Callable[[httpx.Client], httpx.Response]


def run(*, quick: bool = False) -> list[dict[str, Any]]:
    """Return a row for each read: its median time by history, and ratios to the shortest."""
    histories = QUICK if quick else HISTORIES
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(dir=RESULTS.resolve())))
        servers = {}
        for length in histories:
            path = folder / f"{length}.db"
            _fill(path, length)
            # Without its cache, every scrape is rendered anew.
            server = Server(f"sqlite:///{path}", "--scrape-cache", "0")
            servers[length] = stack.enter_context(server)
        times = _times(servers, rounds=10 if quick else ROUNDS)
    return [_row(name, by_length) for name, by_length in times.items()]


def _fill(path: Path, length: int) -> None:
    """Make a store in which every rank has reported and committed so many iterations."""
    store = SqliteStore(path, RuleSet())
    for first in range(0, length, BLOCK):
        iterations = range(first, min(first + BLOCK, length))
        arrivals = [Arrival(_report(rank, iterations), time.time()) for rank in range(RANKS)]
        for outcome in store.ingest(arrivals):
            assert isinstance(outcome, Receipt), outcome
            assert outcome.accepted == MICROBATCHES * len(iterations), outcome
        store.maintain()
    store.close()


def _report(rank: int, iterations: range) -> Report:
    places = [(i, m) for i in iterations for m in range(MICROBATCHES)]
    differs = [(i + m + rank) % 2 for i, m in places]
    amounts = [d / (1 + i + m + rank) for d, (i, m) in zip(differs, places, strict=True)]
    return Report(
        run=RUN,
        rank=rank,
        world_size=RANKS,
        partials=PartialColumns(
            series=[SERIES] * len(places),
            iteration=[i for i, _ in places],
            microbatch=[m for _, m in places],
            count=differs,
            valid=[4096] * len(places),
            nonfinite=[0] * len(places),
            max=list(amounts),
            sum=amounts,
        ),
        commits=[Commit(i, MICROBATCHES) for i in iterations],
    )


def _reads(length: int) -> dict[str, Read]:
    runs = "/api/v1/projects/default/runs"
    base = f"{runs}/{RUN}"
    newest = {"from": length - 10, "limit": 10}
    middle = {"after": length // 2, "limit": 10}
    openmetrics = {"Accept": "application/openmetrics-text; version=1.0.0"}
    return {
        "totals": lambda client: client.get(f"{base}/totals"),
        "totals of a rank": lambda client: client.get(f"{base}/totals", params={"rank": 3}),
        "gate": lambda client: client.get(f"{base}/gate"),
        "live gate": lambda client: client.get(f"{base}/gate", params={"live": True}),
        "runs": lambda client: client.get(runs),
        "ranks": lambda client: client.get(f"{base}/ranks"),
        "worst": lambda client: client.get(f"{base}/worst"),
        "newest 10 iterations": lambda client: client.get(f"{base}/iterations", params=newest),
        "10 in the middle": lambda client: client.get(f"{base}/iterations", params=middle),
        "first 10 iterations": lambda client: client.get(f"{base}/iterations?limit=10"),
        "/metrics, text": lambda client: client.get("/metrics"),
        "/metrics, OpenMetrics": lambda client: client.get("/metrics", headers=openmetrics),
    }


def _times(servers: dict[int, Server], rounds: int) -> dict[str, dict[int, list[float]]]:
    """Return the seconds of every read, by history, the histories taking turns."""
    reads = {length: _reads(length) for length in servers}
    names = list(next(iter(reads.values())))
    times: dict[str, dict[int, list[float]]] = {n: {k: [] for k in servers} for n in names}
    for number in range(rounds + 1):
        # Turning the order round each time keeps what comes first from always being the same.
        turn = list(servers.items())[:: -1 if number % 2 else 1]
        for name in names:
            for length, server in turn:
                seconds = _timed(reads[length][name], server.client)
                if number:  # the first round only warms up
                    times[name][length].append(seconds)
    return times


def _timed(read: Read, client: httpx.Client) -> float:
    started = time.perf_counter()
    answer = read(client)
    seconds = time.perf_counter() - started
    assert answer.status_code == 200, answer.text
    return seconds


def _row(name: str, by_length: dict[int, list[float]]) -> dict[str, Any]:
    medians = {length: median(seconds) for length, seconds in by_length.items()}
    shortest = next(iter(medians.values()))
    columns: dict[str, Any] = {"read": name}
    for length, seconds in medians.items():
        columns[f"{length} iterations, ms"] = round(1e3 * seconds, 2)
    for length, seconds in list(medians.items())[1:]:
        columns[f"ratio at {length}"] = round(seconds / shortest, 2)
    return columns
