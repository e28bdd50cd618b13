"""Where a report's time goes on its way from bytes to the disk: each step, in one process.

HTTP and the hand-over between threads are what a server's processor time per request (`ingest`)
has beyond the sum of these.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import islice
from pathlib import Path
from statistics import mean, quantiles
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from tests.bench.processes import RESULTS
from tests.bench.workload import Shape, build

from rankfold.facts import Facts
from rankfold.ledger import Ledger
from rankfold.rules import RuleSet
from rankfold.wire import Receipt, Report
from rankfold_service.http.decode import decode_report
from rankfold_service.http.quick import QuickReader
from rankfold_service.http.shapes import REPORT, ReportBody
from rankfold_service.store import Arrival
from rankfold_service.store.record import Entry, pack
from rankfold_service.store.sqlite import SqliteStore

T = TypeVar("T")
RUN = "parts"
SHAPES = (
    Shape(1, "columns", 8_192),
    Shape(10, "columns", 4_096),
    Shape(100, "columns", 2_048),
    Shape(100, "columns", 1_024, full=True),
    Shape(1000, "columns", 512),
)
# What one commit takes of 64 connections, while the other half of them is answered.
PER_COMMIT = 32


def run(*, quick: bool = False) -> list[dict[str, Any]]:
    """Return a row for each shape of report: microseconds a report by step, and against `json`."""
    return [_row(shape, 4 if quick else 1) for shape in SHAPES]


def _row(shape: Shape, share: int) -> dict[str, Any]:
    requests = build(shape, RUN).requests[: shape.requests // share]
    bodies = [request.partition(b"\r\n\r\n")[2] for request in requests]
    rules = RuleSet()
    ledger = Ledger("default", RUN, Facts(rules))
    plain, _ = _times(json.loads, bodies)
    parsed, _ = _times(QuickReader(REPORT, ReportBody).read, bodies)
    decoded, reports = _times(lambda body: decode_report(body, rules), bodies)
    folded, receipts = _times(lambda report: ledger.apply(report, 0.0), reports)
    assert all(receipt.accepted == shape.batch for receipt in receipts)
    packed, _ = _times(lambda report: pack(Entry("report", 0.0, 16, report)), reports)
    taken, tables = _in_store(reports)
    whole = _low(decoded) + taken + tables
    steps = {
        "decode us": _low(decoded),
        "of it parse": _low(parsed),
        "take durably us": taken,
        "of it decide and fold": _low(folded),
        "of it record": _low(packed),
        "tables us": tables,
        "sum us": whole,
        "json us": _low(plain),
        "times json": whole / _low(plain),
    }
    return {
        "batch": shape.batch,
        "fields": "all" if shape.full else "required",
        **{name: round(value, 1) for name, value in steps.items()},
    }


def _times(step: Callable[[Any], T], inputs: Iterable[Any]) -> tuple[list[float], list[T]]:
    """Return the microseconds that a step took of each input, and what it made of it."""
    times, made = [], []
    for each in inputs:
        started = time.perf_counter()
        outcome = step(each)
        times.append(1e6 * (time.perf_counter() - started))
        made.append(outcome)
    return times, made


def _in_store(reports: list[Report]) -> tuple[float, float]:
    """Return the microseconds a report to take it durably, and to bring the tables up to date."""
    waiting = iter(reports)
    taken, tables = [], []
    with (
        TemporaryDirectory(dir=RESULTS.resolve()) as folder,
        closing(SqliteStore(Path(folder) / "parts.db", RuleSet())) as store,
    ):
        while share := list(islice(waiting, PER_COMMIT)):
            arrivals = [Arrival(report, 0.0) for report in share]
            started = time.perf_counter()
            outcomes = store.ingest(arrivals)
            then = time.perf_counter()
            store.maintain()
            tables.append(1e6 * (time.perf_counter() - then) / len(share))
            taken.append(1e6 * (then - started) / len(share))
            assert all(isinstance(outcome, Receipt) for outcome in outcomes)
    return _low(taken), mean(tables)  # the tables' time comes in bursts


def _low(times: list[float]) -> float:
    """Return the time that a tenth do not exceed: what the machine's noise adds least to."""
    return quantiles(times, n=10)[0]
