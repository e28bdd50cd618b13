"""Resident memory of a server that keeps the newest iterations of many runs by microbatch."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tests.bench.load import Load, receipt
from tests.bench.processes import RESULTS, resident_bytes
from tests.bench.workload import differences, request
from tests.support.server import Server

RUNS = 200
RANKS = 64
ITERATIONS = 16
SERIES = "training/rollout_logprobs"
VALID = 4096


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    parser.add_argument("--runs", type=int, default=RUNS, help="how many (default: %(default)s)")


def run(*, quick: bool = False, runs: int = RUNS) -> list[dict[str, Any]]:
    """Return a row for each number of microbatches: what the process keeps resident."""
    return [_row(runs // 4 if quick else runs, microbatches) for microbatches in (1, 4)]


def _row(runs: int, microbatches: int) -> dict[str, Any]:
    partials = ITERATIONS * microbatches  # of a rank
    with (
        TemporaryDirectory(dir=RESULTS.resolve()) as folder,
        Server(f"sqlite:///{folder}/memory.db") as server,
    ):
        empty = _resident(server)
        with Load(server.port) as load:
            for number in range(runs):
                load.drive(list(_reports(number, microbatches)), receipt(partials))
        full = _resident(server)
        keys = server.get(f"run-{runs - 1}", "totals")["keys"]
        assert keys[f"{SERIES}_valid_count"]["value"] == VALID * RANKS * partials
        disk = sum(file.stat().st_size for file in Path(folder).iterdir())
        server.kill()
        server.start()
        assert server.client.get("/metrics").status_code == 200
        restarted = _resident(server)
    cells = runs * RANKS * ITERATIONS
    return {
        "runs": runs,
        "ranks": RANKS,
        "iterations": ITERATIONS,
        "microbatches": microbatches,
        "empty MB": round(empty / 1e6, 1),
        "resident MB": round(full / 1e6, 1),
        "after a restart MB": round(restarted / 1e6, 1),
        "bytes per rank and iteration": round((full - empty) / cells, 1),
        "disk bytes/partial": round(disk / (cells * microbatches), 1),
    }


def _resident(server: Server) -> int:
    assert server.process is not None
    return resident_bytes(server.process.pid)


def _reports(number: int, microbatches: int) -> Iterator[bytes]:
    """Yield what every rank of a run reports: all its iterations at once."""
    size = ITERATIONS * microbatches
    numbers = differences(np.random.default_rng(number), RANKS * size, VALID)
    places = {
        "series": [SERIES] * size,
        "iteration": [i for i in range(ITERATIONS) for _ in range(microbatches)],
        "microbatch": list(range(microbatches)) * ITERATIONS,
    }
    commits = [{"iteration": i, "microbatches": microbatches} for i in range(ITERATIONS)]
    for rank in range(RANKS):
        here = slice(rank * size, (rank + 1) * size)
        columns = {**places, **{name: values[here] for name, values in numbers.items()}}
        body = {"run": f"run-{number}", "rank": rank, "world_size": RANKS}
        yield request({**body, "partials": columns, "commits": commits})
