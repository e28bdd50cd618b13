"""What partials and scalars fold into: two commutative monoids, and a table of them.

`merge` is associative and commutative and has an identity, so folds may be made in any order
and any grouping, on any number of ranks, and come out with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rankfold.exact import to_units
from rankfold.partial import PartialColumns, Worst

KEPT_WORST = 16


class Place(NamedTuple):
    """Which microbatch something belongs to; orders by time, then rank, then attempt."""

    iteration: int
    microbatch: int
    rank: int
    attempt: int


class WorstToken(NamedTuple):
    """A mismatch and the microbatch in which it was the worst."""

    place: Place
    worst: Worst

    def sort_key(self) -> tuple[Any, ...]:
        """Order the largest first: non-finite, then by |a - b|, then by ulp, then by place.

        A place has one worst token of a series, so no two of a fold tie.
        """
        worst = self.worst
        distance = abs(worst.a - worst.b)
        finite = math.isfinite(distance)
        return (finite, -distance if finite else 0.0, -worst.ulp, self.place)


class Moments(NamedTuple):
    """Count, sum and sum of squares over the partials that reported squares; in exact units."""

    positions: int
    sum: int
    sum_sq: int


class Fold(NamedTuple):
    """Any number of partials of one series, folded.

    Attributes:
        partials: how many were folded.
        valid: sum of `valid`.
        count: sum of `count`.
        nonfinite: sum of `nonfinite`.
        sum: exact sum of `sum` in units of 2**-1074.
        max: largest `max`, or None where every one was null.
        min: smallest `max`, likewise.
        moments: what a standard deviation needs, where `sum_sq` was reported.
        ulp_max: largest `ulp_max`, where reported.
        total: sum of `total`, where reported.
        worst: the worst tokens, largest first, at most `KEPT_WORST`.
    """

    partials: int = 0
    valid: int = 0
    count: int = 0  # type: ignore[assignment]  # a tuple has a method of that name
    nonfinite: int = 0
    sum: int = 0
    max: float | None = None
    min: float | None = None
    moments: Moments | None = None
    ulp_max: int | None = None
    total: int | None = None
    worst: tuple[WorstToken, ...] = ()

    @property
    def finite(self) -> int:
        """Positions whose d is finite: the denominator of the mean."""
        return self.valid - self.nonfinite

    def merge(self, other: Fold) -> Fold:
        """Return the fold of both."""
        if not self.partials:
            return other
        return Fold(
            self.partials + other.partials,
            self.valid + other.valid,
            self.count + other.count,
            self.nonfinite + other.nonfinite,
            self.sum + other.sum,
            largest(self.max, other.max),
            smallest(self.min, other.min),
            _add_moments(self.moments, other.moments),
            largest(self.ulp_max, other.ulp_max),
            _add(self.total, other.total),
            _merge_worst(self.worst, other.worst),
        )

    def without(self, part: Fold) -> Fold:
        """Return what was folded but for a part of it, as far as a fold can tell.

        Sums are exact. `max` is right where `tells_max_without` says so. The worst tokens are
        those that are left of the kept ones; `min`, `ulp_max` and optional fields stay.
        """
        places = {token.place for token in part.worst}  # NaN equals nothing, a place itself
        rest = self._replace(
            partials=self.partials - part.partials,
            valid=self.valid - part.valid,
            count=self.count - part.count,
            nonfinite=self.nonfinite - part.nonfinite,
            sum=self.sum - part.sum,
            worst=tuple(token for token in self.worst if token.place not in places),
        )
        if rest.count == 0:  # then every finite difference is 0
            rest = rest._replace(max=0.0 if rest.finite else None)
        return rest

    def tells_max_without(self, part: Fold) -> bool:
        """Whether `without` is sure of the largest difference: it is not that of the part."""
        return self.count == part.count or part.max is None or part.max != self.max

    @classmethod
    def of(cls, columns: PartialColumns, chosen: Sequence[int], rank: int, attempt: int) -> Fold:
        """Return the fold of the chosen rows of a report of one rank and attempt."""
        valid, nonfinite = columns.valid, columns.nonfinite
        maxima = [columns.max[i] for i in chosen]
        known = [m for m in maxima if m is not None]
        return cls(
            len(chosen),
            sum([valid[i] for i in chosen]),
            sum([columns.count[i] for i in chosen]),
            sum([nonfinite[i] for i in chosen]),
            sum([to_units(columns.sum[i]) for i in chosen]),
            max(known) + 0.0 if known else None,  # adding 0 turns -0.0 into 0.0: one zero
            min(known) + 0.0 if known else None,
            _moments(columns, chosen),
            max(_present(columns.ulp_max, chosen), default=None),
            _sum_or_none(_present(columns.total, chosen)),
            _worst(columns, chosen, rank, attempt),
        )


class ScalarFold(NamedTuple):
    """Any number of scalars of one key, folded.

    Attributes:
        values: how many finite ones were folded.
        nonfinite: how many were kept out because they are NaN or infinite.
        weight: sum of `weight` of the finite ones.
        sum: exact sum of `value` in units of 2**-1074.
        weighted: exact sum of `value * weight`, likewise.
        max: the largest value.
        min: the smallest value.
        last: the latest place and its value.
    """

    values: int = 0
    nonfinite: int = 0
    weight: int = 0
    sum: int = 0
    weighted: int = 0
    max: float | None = None
    min: float | None = None
    last: tuple[Place, float] | None = None

    def merge(self, other: ScalarFold) -> ScalarFold:
        """Return the fold of both."""
        return ScalarFold(
            self.values + other.values,
            self.nonfinite + other.nonfinite,
            self.weight + other.weight,
            self.sum + other.sum,
            self.weighted + other.weighted,
            largest(self.max, other.max),
            smallest(self.min, other.min),
            largest(self.last, other.last),
        )

    @classmethod
    def of(cls, value: float, weight: int, place: Place) -> ScalarFold:
        """Return the fold of one value."""
        if not math.isfinite(value):
            return cls(nonfinite=1)
        units = to_units(value)
        value += 0.0  # one zero, as in partials
        return cls(1, 0, weight, units, units * weight, value, value, (place, value))


class Table:
    """The folds of several series and scalar keys, by name; grows by merging."""

    __slots__ = ("scalars", "series")

    def __init__(self) -> None:
        self.series: dict[str, Fold] = {}
        self.scalars: dict[str, ScalarFold] = {}

    def add_series(self, series: str, fold: Fold) -> None:
        """Fold more partials into a series."""
        known = self.series.get(series)
        self.series[series] = fold if known is None else known.merge(fold)

    def add_scalar(self, key: str, fold: ScalarFold) -> None:
        """Fold more values into a scalar key."""
        known = self.scalars.get(key)
        self.scalars[key] = fold if known is None else known.merge(fold)

    def add(self, other: Table) -> None:
        """Fold another table into this one."""
        for series, fold in other.series.items():
            self.add_series(series, fold)
        for key, scalar in other.scalars.items():
            self.add_scalar(key, scalar)

    @classmethod
    def union(cls, tables: Iterable[Table]) -> Table:
        """Return a new table of everything in the given ones."""
        united = cls()
        for table in tables:
            united.add(table)
        return united


def largest(a: Any, b: Any) -> Any:
    """Return the larger of two values, leaving None out."""
    if a is None:
        return b
    return a if b is None or a >= b else b


def smallest(a: Any, b: Any) -> Any:
    """Return the smaller of two values, leaving None out."""
    if a is None:
        return b
    return a if b is None or a <= b else b


def _add(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _present(column: Sequence[int | None] | None, chosen: Sequence[int]) -> list[int]:
    if column is None:
        return []
    return [value for i in chosen if (value := column[i]) is not None]


def _sum_or_none(values: list[int]) -> int | None:
    return sum(values) if values else None


def _moments(columns: PartialColumns, chosen: Sequence[int]) -> Moments | None:
    squares = columns.sum_sq
    if squares is None:
        return None
    found = [(i, square) for i in chosen if (square := squares[i]) is not None]
    if not found:
        return None
    return Moments(
        sum([columns.valid[i] - columns.nonfinite[i] for i, _ in found]),
        sum([to_units(columns.sum[i]) for i, _ in found]),
        sum([to_units(square) for _, square in found]),
    )


def _add_moments(a: Moments | None, b: Moments | None) -> Moments | None:
    if a is None or b is None:
        return b if a is None else a
    return Moments(a.positions + b.positions, a.sum + b.sum, a.sum_sq + b.sum_sq)


def _worst(
    columns: PartialColumns, chosen: Sequence[int], rank: int, attempt: int
) -> tuple[WorstToken, ...]:
    if columns.worst is None:
        return ()
    found = [
        WorstToken(Place(columns.iteration[i], columns.microbatch[i], rank, attempt), worst)
        for i in chosen
        if (worst := columns.worst[i]) is not None
    ]
    return _keep_worst(found)


def _merge_worst(a: tuple[WorstToken, ...], b: tuple[WorstToken, ...]) -> tuple[WorstToken, ...]:
    if not a or not b:
        return a or b
    # Most microbatches have nothing that is worse than what a long run has kept.
    if len(a) == KEPT_WORST and a[-1].sort_key() < b[0].sort_key():
        return a
    return _keep_worst([*a, *b])


def _keep_worst(tokens: list[WorstToken]) -> tuple[WorstToken, ...]:
    return tuple(sorted(tokens, key=WorstToken.sort_key)[:KEPT_WORST])
