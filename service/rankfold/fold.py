"""What partials and scalars fold into: two commutative monoids, and a table of them.

`merge` is associative and commutative and has an identity, so folds may be made in any order
and any grouping, on any number of ranks, and come out with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from rankfold.exact import sum_to_units, to_units
from rankfold.partial import PartialColumns, PartialContent, Worst, picker

KEPT_WORST = 16

T = TypeVar("T")


class Place(NamedTuple):
    """Which microbatch something belongs to; orders by time, then rank, then attempt."""

    iteration: int
    microbatch: int
    rank: int
    attempt: int


class WorstToken(NamedTuple):
    """A mismatch and the microbatch in which it was the worst; `of` makes one.

    They order the largest first: non-finite, then by |a - b|, then by ulp, then by place. A place
    has one worst token of a series, so no two of a fold tie.
    """

    finite: bool
    minus_distance: float
    minus_ulp: int
    place: Place
    worst: Worst

    @classmethod
    def of(cls, place: Place, worst: Worst) -> WorstToken:
        """Return the token with what it is ordered by."""
        distance = abs(worst.a - worst.b)
        finite = math.isfinite(distance)
        return cls(finite, -distance if finite else 0.0, -worst.ulp, place, worst)


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

    @property
    def bare(self) -> Fold:
        """This fold without its worst tokens, which are kept over all ranks alone."""
        return _fold((*self[:-1], ())) if self.worst else self

    def merge(self, other: Fold) -> Fold:
        """Return the fold of both."""
        if not self.partials:
            return other
        # Unpacked, because this runs several times for every group of partials.
        partials, valid, count, nonfinite, sum_, max_, min_, moments, ulp_max, total, worst = other
        return _fold(
            (
                self.partials + partials,
                self.valid + valid,
                self.count + count,
                self.nonfinite + nonfinite,
                self.sum + sum_,
                largest(self.max, max_),
                smallest(self.min, min_),
                self.moments if moments is None else _add_moments(self.moments, moments),
                self.ulp_max if ulp_max is None else largest(self.ulp_max, ulp_max),
                self.total if total is None else total + (self.total or 0),
                _merge_worst(self.worst, worst) if worst else self.worst,
            )
        )

    def without(self, part: Fold) -> Fold:
        """Return what was folded but for a part of it, as far as a fold can tell.

        Sums are exact. `max` is right where `tells_max_without` says so. The worst tokens are
        those that are left of the kept ones; `min`, `ulp_max` and optional fields stay.
        """
        max_, worst = self.max, self.worst
        if self.count == part.count:  # then every finite difference is 0
            max_ = 0.0 if self.finite > part.finite else None
        if worst and part.worst:
            places = {token.place for token in part.worst}  # NaN equals nothing, a place itself
            worst = tuple(token for token in worst if token.place not in places)
        return _fold(
            (
                self.partials - part.partials,
                self.valid - part.valid,
                self.count - part.count,
                self.nonfinite - part.nonfinite,
                self.sum - part.sum,
                max_,
                *self[6:10],
                worst,
            )
        )

    def tells_max_without(self, part: Fold) -> bool:
        """Whether `without` is sure of the largest difference: it is not that of the part."""
        return self.count == part.count or part.max is None or part.max != self.max

    @classmethod
    def of(cls, contents: Sequence[PartialContent]) -> Fold:
        """Return the fold of partials of one series, without their optional fields."""
        if not contents:
            return cls()
        _, count, valid, nonfinite, maxima, sums = zip(*contents, strict=True)
        known = _present(maxima)
        return cls(
            len(contents),
            sum(valid),
            sum(count),
            sum(nonfinite),
            sum_to_units(sums),
            max(known) + 0.0 if known else None,  # adding 0 turns -0.0 into 0.0: one zero
            min(known) + 0.0 if known else None,
        )

    @property
    def least(self) -> float:
        """The distance |a - b| below which no further token is among the worst; 0 if any may be."""
        if len(self.worst) < KEPT_WORST:
            return 0.0
        last = self.worst[-1]
        return -last.minus_distance if last.finite else math.inf

    def detailed(
        self, columns: PartialColumns, rank: int, attempt: int, least: float = 0.0
    ) -> Fold:
        """Return this fold with the optional fields of the partials that it is of.

        Args:
            columns: those partials, whole.
            rank: who reported them.
            attempt: in which attempt.
            least: worst tokens of a smaller |a - b| are left out.
        """
        ulp_max, total = _present(columns.ulp_max or ()), _present(columns.total or ())
        return Fold(
            *self[:7],  # what `of` makes
            self._moments(columns, columns.sum_sq) if columns.sum_sq else None,
            max(ulp_max, default=None),
            sum(total) if total else None,
            _worst(columns, columns.worst, rank, attempt, least) if columns.worst else (),
        )

    def _moments(self, columns: PartialColumns, squares: Sequence[float | None]) -> Moments | None:
        known = [row for row, square in enumerate(squares) if square is not None]
        if not known:
            return None
        of_known = Fold.of(picker(known)(columns.contents())) if len(known) < len(squares) else self
        return Moments(of_known.finite, of_known.sum, sum_to_units(_present(squares)))


# What the class's own constructor does with its arguments, in half the time.
_fold: Callable[[tuple[Any, ...]], Fold] = partial(tuple.__new__, Fold)


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

    def bare(self) -> Table:
        """Return a table of the same without worst tokens."""
        table = Table()
        table.series = {series: fold.bare for series, fold in self.series.items()}
        table.scalars = self.scalars
        return table

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


def _present(column: Sequence[T | None]) -> Sequence[T]:
    """Return the values of a column that are there."""
    if None in column:
        return [value for value in column if value is not None]
    return cast("Sequence[T]", column)


def _add_moments(a: Moments | None, b: Moments) -> Moments:
    if a is None:
        return b
    return Moments(a.positions + b.positions, a.sum + b.sum, a.sum_sq + b.sum_sq)


def _worst(
    columns: PartialColumns, worst: Sequence[Worst | None], rank: int, attempt: int, least: float
) -> tuple[WorstToken, ...]:
    rows = zip(columns.iteration, columns.microbatch, worst, strict=True)
    return _keep_worst(
        WorstToken.of(Place(iteration, microbatch, rank, attempt), token)
        for iteration, microbatch, token in rows
        # Negated, because a NaN is below nothing, and it is among the worst.
        if token is not None and not abs(token.a - token.b) < least
    )


def _merge_worst(a: tuple[WorstToken, ...], b: tuple[WorstToken, ...]) -> tuple[WorstToken, ...]:
    if not a or not b:
        return a or b
    # Most microbatches have nothing that is worse than what a long run has kept.
    if len(a) == KEPT_WORST and a[-1] < b[0]:
        return a
    return _keep_worst([*a, *b])


def _keep_worst(tokens: Iterable[WorstToken]) -> tuple[WorstToken, ...]:
    return tuple(sorted(tokens)[:KEPT_WORST])
