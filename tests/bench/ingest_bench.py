"""Durable ingest: a real server on a real file under load, beside a baseline that only counts."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench import load
from tests.bench.load import Outcome, Target
from tests.bench.processes import RESULTS, baseline, pin
from tests.bench.workload import Expected, Shape
from tests.support.server import Server

RUN = "ingest"
ROUNDS = 3
BASELINE_SHARE = 8
SHAPES = (
    Shape(1, "columns", 16_000),
    Shape(1, "rows", 16_000),
    Shape(10, "columns", 8_000),
    Shape(100, "columns", 4_000),
    Shape(100, "rows", 3_000),
    Shape(100, "columns", 3_000, full=True),
    Shape(1000, "columns", 1_024),
    Shape(1000, "rows", 640),
)
Round = tuple[Outcome, Outcome, Outcome]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    parser.add_argument("--batch", type=int, help="only reports of so many partials")
    parser.add_argument("--form", choices=["columns", "rows"], help="only this form")
    parser.add_argument("--pin", action="store_true", help="server on one core, load on another")


def run(
    *, quick: bool = False, batch: int | None = None, form: str | None = None, pin: bool = False
) -> list[dict[str, Any]]:
    """Return a row for each shape of report: medians over the rounds, ratios to the baseline."""
    chosen = [s for s in SHAPES if batch in (None, s.batch) and form in (None, s.form)]
    server_core, load_core = _cores() if pin else (None, None)
    rows = []
    with load.generator(load_core) as generator, _counter(server_core) as counter:
        for shape in chosen:
            rounds = [
                _round(generator, shape, counter, server_core)
                for _ in range(1 if quick else ROUNDS)
            ]
            rows.append(_row(shape, rounds))
    return rows


def _cores() -> tuple[int, int]:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    return first, second


@contextmanager
def _counter(core: int | None) -> Iterator[Target]:
    """Run the baseline; while it is idle it costs nothing."""
    with baseline() as (port, pid):
        pin(pid, core)
        yield Target(port, pid)


def _round(
    generator: ProcessPoolExecutor, shape: Shape, counter: Target, core: int | None
) -> Round:
    """Measure a new server, then the baseline, with the same requests."""
    generator.submit(load.expected, shape, RUN).result()  # so that nothing is built meanwhile
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(dir=RESULTS.resolve()))
        server = stack.enter_context(Server(f"sqlite:///{folder}/bench.db"))
        assert server.process is not None
        pin(server.process.pid, core)
        target = Target(server.port, server.process.pid)
        most, half = generator.submit(load.most_then_half, target, shape, RUN).result()
        check_totals(server, generator.submit(load.expected, shape, RUN).result())
    count = shape.requests // BASELINE_SHARE
    return most, half, generator.submit(load.most, counter, shape, RUN, count).result()


def check_totals(server: Server, expected: dict[str, Expected]) -> None:
    """What was folded is what was sent, to the last bit of each sum."""
    keys = server.get(RUN, "totals")["keys"]
    folded = {key["series"]: (key["count"], key["valid"], key["sum"]) for key in keys.values()}
    assert folded == {name: (e.count, e.valid, e.sum) for name, e in expected.items()}


def _row(shape: Shape, rounds: list[Round]) -> dict[str, Any]:
    most, half, base = zip(*rounds, strict=True)
    return {
        "batch": shape.batch,
        "form": shape.form,
        "fields": "all" if shape.full else "required",
        "requests/s": round(median(o.rate for o in most)),
        "partials/s": round(shape.batch * median(o.rate for o in most)),
        "p50 ms": _milliseconds(most, 0.5),
        "p99 ms": _milliseconds(most, 0.99),
        "p50 ms, half load": _milliseconds(half, 0.5),
        "p99 ms, half load": _milliseconds(half, 0.99),
        "worst ms, half load": round(1e3 * max(max(o.latencies) for o in half), 1),
        "server cpu us/request": _cpu(most),
        "load cpu us/request": round(1e6 * median(o.load_cpu / o.requests for o in most), 1),
        "load's share of a core": round(median(o.load_cpu / o.seconds for o in most), 2),
        "others' share": round(median(o.other_cpu / o.seconds for o in most), 2),
        "baseline partials/s": round(shape.batch * median(o.rate for o in base)),
        "baseline cpu us/request": _cpu(base),
        "rate ratio": round(median(o.rate / b.rate for o, b in zip(most, base, strict=True)), 2),
        "cpu ratio": round(_cpu(most) / _cpu(base), 2),
    }


def _milliseconds(outcomes: tuple[Outcome, ...], share: float) -> float:
    return round(1e3 * median(o.quantile(share) for o in outcomes), 1)


def _cpu(outcomes: tuple[Outcome, ...]) -> float:
    return round(1e6 * median(o.server_cpu / o.requests for o in outcomes), 1)
