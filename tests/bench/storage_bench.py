"""Storage: bytes per partial after folding, and how long a restart takes over a long history."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench.processes import RESULTS
from tests.support.server import Server

from rankfold.partial import PartialColumns
from rankfold.rules import RuleSet
from rankfold.wire import Commit, Receipt, Report
from rankfold_service.store import Arrival
from rankfold_service.store.sqlite import SqliteStore

RUN = "history"
SERIES = "training/rollout_logprobs"
MICROBATCHES = 64


def run(*, quick: bool = False) -> list[dict[str, Any]]:
    """Return a row per history: size on disk, restart after a kill, first scrape."""
    histories = [(16, 1_000 // 16), (1, 1_000), (64, 250 if quick else 2_442)]
    rows = [_row(ranks, iterations) for ranks, iterations in histories]
    ratio = _commit_ratio(16, 100 if quick else 300)
    return [{**row, "p99 folding / not": ratio} for row in rows]


def _row(ranks: int, iterations: int) -> dict[str, Any]:
    partials = ranks * iterations * MICROBATCHES
    with TemporaryDirectory(dir=RESULTS.resolve()) as folder:
        path = Path(folder) / "rankfold.db"
        started = time.perf_counter()
        _fill(path, ranks, iterations)
        filled = time.perf_counter() - started
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        with Server(f"sqlite:///{path}") as server:
            value = server.get(RUN, "totals")["keys"][f"{SERIES}_valid_count"]["value"]
            assert value == 4096 * partials
            _report_some(server)
            server.kill()
            started = time.perf_counter()
            server.start()
            restart = time.perf_counter() - started
            started = time.perf_counter()
            assert server.client.get("/metrics").status_code == 200
            scrape = time.perf_counter() - started
    return {
        "ranks": ranks,
        "iterations": iterations,
        "partials": partials,
        "fill partials/s": round(partials / filled),
        "bytes/partial": round(size / partials, 2),
        "restart s": round(restart, 2),
        "first scrape ms": round(scrape * 1000, 1),
    }


def _commit_ratio(ranks: int, iterations: int) -> float:
    """Return the p99 of a commit while iterations are folded away, against keeping them all."""
    times: dict[int, list[float]] = {16: [], 10**6: []}
    with TemporaryDirectory(dir=RESULTS.resolve()) as folder, ExitStack() as stack:
        stores = {
            keep: stack.enter_context(
                closing(SqliteStore(Path(folder) / f"{keep}.db", RuleSet(), keep_iterations=keep))
            )
            for keep in times
        }
        for iteration in range(iterations):
            for keep, store in stores.items():
                for rank in range(ranks):
                    arrival = Arrival(_report(rank, ranks, iteration, random.Random(1)), 1.0)
                    started = time.perf_counter()
                    store.ingest([arrival])
                    store.maintain()
                    times[keep].append(time.perf_counter() - started)
    folding, keeping = (quantiles(sorted(found), n=100)[98] for found in times.values())
    return round(folding / keeping, 2)


def _fill(path: Path, ranks: int, iterations: int) -> None:
    store = SqliteStore(path, RuleSet())
    numbers = random.Random(1)
    for iteration in range(iterations):
        arrivals = [
            Arrival(_report(rank, ranks, iteration, numbers), time.time()) for rank in range(ranks)
        ]
        for outcome in store.ingest(arrivals):
            assert isinstance(outcome, Receipt), outcome
            assert outcome.accepted == MICROBATCHES, outcome
        store.maintain()
    store.close()


def _report(rank: int, ranks: int, iteration: int, numbers: random.Random) -> Report:
    """Return one rank's iteration; every second partial has mismatches."""
    sums = [numbers.random() * 1e-3 * (m % 2) for m in range(MICROBATCHES)]
    columns = PartialColumns(
        series=[SERIES] * MICROBATCHES,
        iteration=[iteration] * MICROBATCHES,
        microbatch=list(range(MICROBATCHES)),
        count=[7 * (m % 2) for m in range(MICROBATCHES)],
        valid=[4096] * MICROBATCHES,
        nonfinite=[0] * MICROBATCHES,
        max=[value / 2 for value in sums],
        sum=sums,
    )
    commits = [Commit(iteration, MICROBATCHES)]
    return Report(RUN, rank, world_size=ranks, partials=columns, commits=commits)


def _report_some(server: Server) -> None:
    """Leave something in the journal for the restart to replay."""
    for number in range(200):
        rows = [
            {
                **{"series": SERIES, "iteration": 10**6 + number, "microbatch": m},
                **{"count": 0, "max": 0.0, "sum": 0.0, "valid": 4096},
            }
            for m in range(MICROBATCHES)
        ]
        assert server.report(run=RUN, rank=0, partials=rows).status_code == 200
