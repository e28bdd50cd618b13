"""Durable ingest: a real server on a real file under load, beside a baseline that only counts."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench.load import Outcome, Target, generator, measure
from tests.bench.processes import RESULTS, baseline
from tests.bench.workload import Expected, Shape
from tests.support.server import Server

ROUNDS = 3
SHAPES = (
    Shape(1, "columns", 4000),
    Shape(1, "rows", 4000),
    Shape(10, "columns", 3000),
    Shape(10, "rows", 3000),
    Shape(100, "columns", 1000),
    Shape(100, "rows", 1000),
    Shape(100, "columns", 1000, full=True),
    Shape(1000, "columns", 192),
    Shape(1000, "rows", 192),
)


def run(*, quick: bool = False) -> list[dict[str, Any]]:
    """Return a row for each shape of report: medians over the rounds, ratios to the baseline."""
    outcomes: dict[Shape, list[tuple[Outcome, Outcome]]] = {shape: [] for shape in SHAPES}
    with generator() as load:
        for number in range(1 if quick else ROUNDS):
            with _peers() as (server, counter):
                for shape in SHAPES:
                    run_name = f"round-{number} batch-{shape.batch} {shape.form} {shape.full}"
                    pair = _compared(load, server, counter, shape, run_name)
                    outcomes[shape].append(pair)
    return [_row(shape, pairs) for shape, pairs in outcomes.items()]


@contextmanager
def _peers() -> Iterator[tuple[Server, Target]]:
    """Run a server on a new file and the baseline; idle ones cost nothing."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(dir=RESULTS.resolve()))
        server = stack.enter_context(Server(f"sqlite:///{folder}/bench.db"))
        url, pid = stack.enter_context(baseline())
        yield server, Target(int(url.rpartition(":")[2]), pid)


def _compared(
    load: ProcessPoolExecutor, server: Server, counter: Target, shape: Shape, run_name: str
) -> tuple[Outcome, Outcome]:
    """Measure one shape on the server and the baseline, one after the other."""
    assert server.process is not None
    target = Target(server.port, server.process.pid)
    ours = load.submit(measure, target, shape, run_name).result()
    _check(ours, shape)
    _check_totals(server, run_name, ours.expected)
    theirs = load.submit(measure, counter, shape, run_name).result()
    _check(theirs, shape)
    return ours, theirs


def _check(outcome: Outcome, shape: Shape) -> None:
    """A figure counts only if every report was taken, once."""
    assert outcome.answers == {"200": shape.requests}, outcome.answers
    assert (outcome.accepted, outcome.refused) == (shape.partials, 0), outcome


def _check_totals(server: Server, run_name: str, expected: dict[str, Expected]) -> None:
    """What was folded is what was sent, to the last bit of each sum."""
    keys = server.get(run_name, "totals")["keys"]
    folded = {key["series"]: (key["count"], key["valid"], key["sum"]) for key in keys.values()}
    assert folded == {name: (e.count, e.valid, e.sum) for name, e in expected.items()}


def _row(shape: Shape, pairs: list[tuple[Outcome, Outcome]]) -> dict[str, Any]:
    ours = [pair[0] for pair in pairs]
    rate = median(shape.requests / o.seconds for o in ours)
    base = median(shape.requests / pair[1].seconds for pair in pairs)
    cpu = median(o.server_cpu for o in ours) / shape.partials
    base_cpu = median(pair[1].server_cpu for pair in pairs) / shape.partials
    return {
        "batch": shape.batch,
        "form": shape.form,
        "fields": "all" if shape.full else "required",
        "requests/s": round(rate),
        "partials/s": round(rate * shape.batch),
        "p50 ms": round(1e3 * median(o.p50 for o in ours), 1),
        "p99 ms": round(1e3 * median(o.p99 for o in ours), 1),
        "cpu us/partial": round(1e6 * cpu, 2),
        "load cpu us/partial": round(1e6 * median(o.load_cpu for o in ours) / shape.partials, 2),
        "baseline partials/s": round(base * shape.batch),
        "baseline cpu us/partial": round(1e6 * base_cpu, 2),
        "rate ratio": round(median(b.seconds / a.seconds for a, b in pairs), 2),
        "cpu ratio": round(cpu / base_cpu, 2),
    }
