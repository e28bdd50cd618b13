"""Reports as a training job of many ranks sends them, as ready HTTP requests.

Every rank goes through its iterations; in each it reports every series of every microbatch, and
then commits. A report is the next so many partials of a rank, with the commits of the iterations
that end in it; ranks take turns. So no two partials have one identity.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rankfold.wire import REPORT_PATH

RANKS = 64
MICROBATCHES = 16
SERIES = ("training/rollout_logprobs", "training/reference_logprobs")
PER_ITERATION = MICROBATCHES * len(SERIES)
VALID = 4096
TOTAL = 8192

Form = Literal["columns", "rows"]
Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Shape:
    """How the reports of one measurement look.

    Attributes:
        batch: partials in a report.
        form: of its list of partials.
        requests: how many reports.
        full: with every optional field, as the client fills them in.
    """

    batch: int
    form: Form
    requests: int
    full: bool = False

    @property
    def partials(self) -> int:
        """How many partials all reports have together."""
        return self.batch * self.requests


@dataclass(frozen=True)
class Expected:
    """What the totals of one series must say afterwards; the sum is correctly rounded."""

    count: int
    valid: int
    sum: float


@dataclass(frozen=True)
class Workload:
    """Requests in the order to send them, and what they add up to, by series."""

    requests: list[bytes]
    expected: dict[str, Expected]


def build(shape: Shape, run: str) -> Workload:
    """Return the requests of one measurement; the same for the same arguments."""
    numbers = differences(np.random.default_rng(1), shape.partials, VALID)
    if shape.full:
        numbers |= _details(np.random.default_rng(2), numbers)
    places = [place for number in range(shape.requests) for place in _places(shape, number)]
    requests = []
    for number in range(shape.requests):
        here = slice(number * shape.batch, (number + 1) * shape.batch)
        series, iterations, microbatches = map(list, zip(*places[here], strict=True))
        columns = {"series": series, "iteration": iterations, "microbatch": microbatches}
        columns |= {name: values[here] for name, values in numbers.items()}
        requests.append(request(_report(run, number % RANKS, columns, shape.form)))
    names = np.array([SERIES.index(series) for series, _, _ in places])
    expected = {name: _expected(numbers, names == at) for at, name in enumerate(SERIES)}
    return Workload(requests, {name: sums for name, sums in expected.items() if sums.valid})


def warm_up(count: int) -> list[bytes]:
    """Return requests that make code paths warm and change no other run."""
    body = {"run": "warm-up", "rank": 0, "partials": [], "commits": []}
    return [request(body)] * count


def request(body: dict[str, Any]) -> bytes:
    """Return the HTTP request that posts a report."""
    return posted(REPORT_PATH, json.dumps(body, separators=(",", ":")).encode())


def posted(path: str, content: bytes, content_type: str = "application/json") -> bytes:
    """Return an HTTP request that posts a body over a connection that stays open."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def differences(source: np.random.Generator, size: int, valid: int) -> Columns:
    """Return the required fields of partials, of which about half differ."""
    differs = source.random(size) < 0.5
    counts = np.where(differs, source.integers(1, valid, size, endpoint=True), 0)
    tops = np.where(differs, source.random(size) * 2.0**-20, 0.0)
    sums = tops * counts * source.random(size)
    return {
        "count": counts.tolist(),
        "valid": [valid] * size,
        "max": tops.tolist(),
        "sum": sums.tolist(),
    }


def _places(shape: Shape, number: int) -> list[tuple[str, int, int]]:
    """Return series, iteration and microbatch of each partial of a report."""
    first = number // RANKS * shape.batch
    return [
        (
            SERIES[index % len(SERIES)],
            index // PER_ITERATION,
            index % PER_ITERATION // len(SERIES),
        )
        for index in range(first, first + shape.batch)
    ]


def _report(run: str, rank: int, columns: Columns, form: Form) -> dict[str, Any]:
    partials: Any = columns
    if form == "rows":
        partials = [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
    places = zip(columns["series"], columns["iteration"], columns["microbatch"], strict=True)
    return {
        "run": run,
        "rank": rank,
        "world_size": RANKS,
        "partials": partials,
        "commits": [
            {"iteration": iteration, "microbatches": MICROBATCHES}
            for series, iteration, microbatch in places
            if microbatch == MICROBATCHES - 1 and series == SERIES[-1]
        ],
    }


def _details(source: np.random.Generator, numbers: Columns) -> Columns:
    """Return the optional fields that go with partials' differences."""
    rows = list(zip(numbers["count"], numbers["max"], numbers["sum"], strict=True))
    places = source.integers(0, 64, (len(rows), 2)).tolist()
    values = (-10 * source.random(len(rows))).tolist()
    return {
        "nonfinite": [0] * len(rows),
        "sum_sq": [top * total for _, top, total in rows],
        "ulp_max": [count for count, _, _ in rows],
        "total": [TOTAL] * len(rows),
        "worst": [
            {"position": place, "a": a, "b": a - top, "ulp": count} if count else None
            for (count, top, _), place, a in zip(rows, places, values, strict=True)
        ],
    }


def _expected(numbers: Columns, chosen: np.ndarray) -> Expected:
    count, valid, sums = (np.array(numbers[name])[chosen] for name in ("count", "valid", "sum"))
    return Expected(int(count.sum()), int(valid.sum()), math.fsum(sums))
