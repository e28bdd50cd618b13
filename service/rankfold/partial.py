"""The values that trainers report: a partial of a comparison, its worst token, and a scalar.

Their invariants live here, once, for the client that makes them and the aggregator that
checks them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, NamedTuple

# What tells a duplicate from a conflict: microbatch, count, valid, nonfinite, max, sum.
PartialContent = tuple[int, int, int, int, float | None, float]

NonfiniteWord = Literal["NaN", "Infinity", "-Infinity"]

MAX_COUNT = 2**53 - 1
MAX_INDEX = 2**31 - 1


class Worst(NamedTuple):
    """Where the largest mismatch of one microbatch was.

    Attributes:
        position: (row, column) in the compared tensors.
        a: the trainer's value, in the compared dtype; may be non-finite.
        b: the rollout's value, likewise.
        ulp: distance in units in the last place; 0 where either value is non-finite.
        token_id: the token's id, where the caller gave one.
        sample: the sample's name, where the caller gave one.
    """

    position: tuple[int, int]
    a: float
    b: float
    ulp: int
    token_id: int | None = None
    sample: str | None = None


@dataclass(frozen=True, slots=True)
class Partial:
    """The summary of one microbatch of one series on one rank.

    With d = |a - b| over the positions under the mask, a and b in one dtype:

    Attributes:
        valid: positions under the mask.
        count: positions where a != b as IEEE values.
        nonfinite: mismatching positions whose d is not finite.
        max: the largest finite d, or None where there is none.
        sum: the sum of the finite d, accumulated in float64.
        sum_sq: the sum of the squared finite d, in float64.
        ulp_max: the largest distance in units in the last place over finite positions.
        total: positions before the mask.
        worst: where the largest mismatch was.
    """

    valid: int
    count: int
    max: float | None
    sum: float
    nonfinite: int = 0
    sum_sq: float | None = None
    ulp_max: int | None = None
    total: int | None = None
    worst: Worst | None = None

    def faults(self) -> list[tuple[str, str]]:
        """Return (field, reason) for each invariant that this partial breaks."""
        return faults(
            self.valid,
            self.count,
            self.nonfinite,
            self.max,
            self.sum,
            self.sum_sq,
            self.total,
            self.ulp_max,
        )


@dataclass(slots=True)
class PartialColumns:
    """The partials of one report as columns of one length; see `Partial`.

    An optional column that no partial of the report has is None as a whole.
    """

    series: Sequence[str] = ()
    iteration: Sequence[int] = ()
    microbatch: Sequence[int] = ()
    count: Sequence[int] = ()
    valid: Sequence[int] = ()
    nonfinite: Sequence[int] = ()
    max: Sequence[float | None] = ()
    sum: Sequence[float] = ()
    sum_sq: Sequence[float | None] | None = None
    ulp_max: Sequence[int | None] | None = None
    total: Sequence[int | None] | None = None
    worst: Sequence[Worst | None] | None = None

    def __len__(self) -> int:
        return len(self.series)

    @property
    def detailed(self) -> bool:
        """Whether any partial has an optional field."""
        optional = (self.sum_sq, self.ulp_max, self.total, self.worst)
        return optional.count(None) < len(optional)

    def contents(self) -> list[PartialContent]:
        """Return what every partial has, row by row."""
        return list(
            zip(
                self.microbatch,
                self.count,
                self.valid,
                self.nonfinite,
                self.max,
                self.sum,
                strict=True,
            )
        )

    def at(self, rows: Sequence[int]) -> PartialColumns:
        """Return these rows as columns of their own."""
        pick = picker(rows)
        return PartialColumns(
            pick(self.series),
            pick(self.iteration),
            pick(self.microbatch),
            pick(self.count),
            pick(self.valid),
            pick(self.nonfinite),
            pick(self.max),
            pick(self.sum),
            self.sum_sq and pick(self.sum_sq),
            self.ulp_max and pick(self.ulp_max),
            self.total and pick(self.total),
            self.worst and pick(self.worst),
        )


def picker(rows: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return what takes these rows of a column; in one pass of C code where there are several."""
    if len(rows) < 2:
        return lambda column: [column[row] for row in rows]
    return itemgetter(*rows)


def faults(
    valid: int,
    count: int,
    nonfinite: int,
    max_: float | None,
    sum_: float,
    sum_sq: float | None = None,
    total: int | None = None,
    ulp_max: int | None = None,
) -> list[tuple[str, str]]:
    """Return (field, reason) for each invariant between a partial's fields that is broken.

    The ranges of the single fields are checked too, so that an empty answer means a partial
    that may be folded.
    """
    found = [
        (name, f"must be an integer from 0 to 2^53-1, not {value}")
        for name, value in (
            ("valid", valid),
            ("count", count),
            ("nonfinite", nonfinite),
            ("total", total),
            ("ulp_max", ulp_max),
        )
        if value is not None and not 0 <= value <= MAX_COUNT
    ]
    if count > valid:
        found.append(("count", f"count {count} is over valid {valid}"))
    if nonfinite > count:
        found.append(("nonfinite", f"nonfinite {nonfinite} is over count {count}"))
    if max_ is None and valid > nonfinite:
        found.append(("max", "null, though there are finite positions (valid > nonfinite)"))
    if max_ is not None and valid == nonfinite:
        found.append(("max", "must be null where no position is finite (valid == nonfinite)"))
    if max_ is not None and not 0 <= max_ < math.inf:
        found.append(("max", f"must be finite and at least 0, not {max_}"))
    if count == 0 and max_:
        found.append(("max", "must be 0 where count is 0"))
    for name, sum_of in (("sum", sum_), ("sum_sq", sum_sq)):
        if sum_of is not None and not 0 <= sum_of < math.inf:
            found.append((name, f"must be finite and at least 0, not {sum_of}"))
        elif sum_of and count == 0:
            found.append((name, "must be 0 where count is 0"))
        elif sum_of and valid == nonfinite:
            found.append((name, "must be 0 where no position is finite (valid == nonfinite)"))
    if total is not None and total < valid:
        found.append(("total", f"total {total} is below valid {valid}"))
    return found


def number_to_json(value: float) -> float | NonfiniteWord:
    """Return a double as JSON can hold it: non-finite ones as the contract's three words."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def number_from_json(value: Any) -> float:
    """Return the double of a JSON number or of one of the three words."""
    return float(value) + 0.0  # adding 0 turns -0.0 into 0.0, so that folds have one zero
