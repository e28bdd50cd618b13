"""Reports as a training job of many ranks sends them, as ready HTTP requests.

Every rank goes through its iterations; in each it reports every series of every microbatch, and
then commits. A report is the next so many partials of a rank, with the commits of the iterations
that end in it; ranks take turns. So no two partials have one identity.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from rankfold.wire import REPORT_PATH

RANKS = 64
MICROBATCHES = 16
SERIES = ("training/rollout_logprobs", "training/reference_logprobs")
VALID = 4096
TOTAL = 8192

Form = Literal["columns", "rows"]
Row = dict[str, Any]


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


@dataclass
class Expected:
    """What the totals of one series must say afterwards."""

    count: int = 0
    valid: int = 0
    sums: list[float] = field(default_factory=list)

    @property
    def sum(self) -> float:
        """The sum, correctly rounded."""
        return math.fsum(self.sums)


@dataclass
class Workload:
    """Requests in the order to send them, and what they add up to, by series."""

    requests: list[bytes]
    expected: dict[str, Expected]


def build(shape: Shape, run: str) -> Workload:
    """Return the requests of one measurement; the same for the same arguments."""
    source = random.Random(1)
    ranks = [_partials(source, shape.full) for _ in range(RANKS)]
    expected: dict[str, Expected] = defaultdict(Expected)
    requests = []
    for number in range(shape.requests):
        rank = number % RANKS
        rows = list(islice(ranks[rank], shape.batch))
        for row in rows:
            _expect(expected[row["series"]], row)
        requests.append(request(_report(run, rank, rows, shape.form)))
    return Workload(requests, dict(expected))


def warm_up(count: int) -> list[bytes]:
    """Return requests that make code paths warm and change no other run."""
    body = {"run": "warm-up", "rank": 0, "partials": [], "commits": []}
    return [request(body)] * count


def request(body: dict[str, Any]) -> bytes:
    """Return the HTTP request that posts a report."""
    content = json.dumps(body, separators=(",", ":")).encode()
    head = (
        f"POST {REPORT_PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def _report(run: str, rank: int, rows: list[Row], form: Form) -> dict[str, Any]:
    partials: Any = rows
    if form == "columns":
        partials = {name: [row[name] for row in rows] for name in rows[0]}
    return {
        "run": run,
        "rank": rank,
        "world_size": RANKS,
        "partials": partials,
        "commits": [
            {"iteration": row["iteration"], "microbatches": MICROBATCHES}
            for row in rows
            if row["microbatch"] == MICROBATCHES - 1 and row["series"] == SERIES[-1]
        ],
    }


def _partials(source: random.Random, full: bool) -> Iterator[Row]:
    """Yield what one rank reports, without end; about half of it differs."""
    iteration = 0
    while True:
        for microbatch in range(MICROBATCHES):
            for series in SERIES:
                place = {"series": series, "iteration": iteration, "microbatch": microbatch}
                row = place | _differences(source)
                yield row | _details(source, row) if full else row
        iteration += 1


def _differences(source: random.Random) -> Row:
    differs = source.random() < 0.5
    top = source.random() * 2.0**-20 if differs else 0.0
    count = source.randint(1, VALID) if differs else 0
    return {"count": count, "valid": VALID, "max": top, "sum": top * count * source.random()}


def _details(source: random.Random, row: Row) -> Row:
    """Return the optional fields that go with a partial's differences."""
    a = -source.random() * 10
    worst = {"position": [source.randint(0, 63), source.randint(0, 127)], "a": a}
    worst |= {"b": a - row["max"], "ulp": row["count"]}
    return {
        "nonfinite": 0,
        "sum_sq": row["max"] * row["sum"],
        "ulp_max": row["count"],
        "total": TOTAL,
        "worst": worst if row["count"] else None,
    }


def _expect(expected: Expected, row: Row) -> None:
    expected.count += row["count"]
    expected.valid += row["valid"]
    expected.sums.append(row["sum"])
