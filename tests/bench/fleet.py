"""Virtual ranks: what many ranks of one run report, iteration after iteration."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tests.bench.workload import differences, posted

from rankfold.wire import REPORT_PATH

VALID = 4096


@dataclass(frozen=True)
class Fleet:
    """Ranks of one run that report in step.

    Attributes:
        ranks: how many.
        series: that each reports.
        microbatches: that each has in an iteration.
        reports: how many each sends in an iteration; the last one commits it.
        iterations: how many there are.

    Raises:
        ValueError: the microbatches cannot be split over the reports.
    """

    ranks: int
    series: int = 3
    microbatches: int = 8
    reports: int = 1
    iterations: int = 1

    def __post_init__(self) -> None:
        if self.microbatches % self.reports:
            raise ValueError(
                f"{self.microbatches} microbatches are not split over {self.reports} reports: "
                "let --reports divide --microbatches"
            )

    @property
    def batch(self) -> int:
        """Partials in a report."""
        return self.series * self.microbatches // self.reports

    @property
    def requests(self) -> int:
        """How many reports there are in all."""
        return self.ranks * self.reports * self.iterations

    @property
    def partials(self) -> int:
        """How many partials there are in all."""
        return self.requests * self.batch

    @property
    def cells(self) -> int:
        """How many pairs of a rank and a series report in an iteration."""
        return self.ranks * self.series

    @property
    def names(self) -> list[str]:
        """The series."""
        return [f"training/rollout_logprobs/{number}" for number in range(self.series)]


@dataclass
class Sent:
    """What was sent of each series, by its place among them."""

    counts: dict[int, int] = field(default_factory=dict)
    sums: dict[int, list[float]] = field(default_factory=dict)

    def add(self, fleet: Fleet, numbers: dict[str, list[Any]]) -> None:
        """Add the numbers of an iteration, in which series take turns."""
        for series in range(fleet.series):
            mine = slice(series, None, fleet.series)
            self.counts[series] = self.counts.get(series, 0) + sum(numbers["count"][mine])
            self.sums.setdefault(series, []).extend(numbers["sum"][mine])

    def sum(self, series: int) -> float:
        """Return the correctly rounded sum of a series."""
        return math.fsum(self.sums[series])


def reports(fleet: Fleet, run: str, iteration: int, sent: Sent) -> Iterator[bytes]:
    """Yield the requests of an iteration, the ranks in another order for every part of it."""
    source = np.random.default_rng(iteration)
    numbers = differences(source, fleet.requests // fleet.iterations * fleet.batch, VALID)
    sent.add(fleet, numbers)
    number = 0
    for part in range(fleet.reports):
        for rank in source.permutation(fleet.ranks).tolist():
            here = slice(number * fleet.batch, (number + 1) * fleet.batch)
            columns = {name: values[here] for name, values in numbers.items()}
            body = _body(fleet, run, rank, iteration, part, columns)
            yield posted(REPORT_PATH, json.dumps(body, separators=(",", ":")).encode())
            number += 1


def _body(
    fleet: Fleet, run: str, rank: int, iteration: int, part: int, numbers: dict[str, list[Any]]
) -> dict[str, Any]:
    microbatches = fleet.microbatches // fleet.reports
    first = part * microbatches
    places = range(first, first + microbatches)
    last = part == fleet.reports - 1
    return {
        "run": run,
        "rank": rank,
        "world_size": fleet.ranks,
        "partials": {
            "series": fleet.names * microbatches,
            "iteration": [iteration] * fleet.batch,
            "microbatch": [m for m in places for _ in range(fleet.series)],
            **numbers,
        },
        "commits": [{"iteration": iteration, "microbatches": fleet.microbatches}] * last,
    }
