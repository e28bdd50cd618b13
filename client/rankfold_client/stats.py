"""What is known of a comparison while it is computed: exact integers and patterns, no tensor."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from rankfold.partial import MAX_COUNT, Partial, Worst
from rankfold_client import bits

_NONFINITE = 1 << 64


class Mismatch(NamedTuple):
    """One mismatching position: its flat index, the patterns of both values, and its token."""

    place: int
    a: int
    b: int
    token: int | None = None


class Label(NamedTuple):
    """What a position is called: (row, column), the token's id and the sample."""

    position: tuple[int, int]
    token_id: int | None
    sample: str | None


@dataclass(slots=True)
class Stats:
    """The statistics of some positions, which add up.

    Attributes:
        valid: positions under the mask.
        count: mismatching positions.
        nonfinite: mismatching positions whose distance is not finite.
        top: double pattern of the largest finite distance, 0 where there is none.
        units: sum of the finite distances in units of 2**-1074.
        sum_sq: sum of their squares, in float64.
        ulp: largest distance in units in the last place over finite values.
        worst: the first of the largest mismatches; a non-finite one is above all others.
    """

    valid: int = 0
    count: int = 0
    nonfinite: int = 0
    top: int = 0
    units: int = 0
    sum_sq: float = 0.0
    ulp: int = 0
    worst: Mismatch | None = None

    @property
    def rank(self) -> int:
        """The largest mismatch as a number that orders them; 0 where there is none."""
        return _NONFINITE if self.nonfinite else self.top

    def add(self, start: int, other: Stats) -> None:
        """Add the positions from flat index `start` on, which come after these."""
        if other.worst is not None and other.rank > self.rank:
            self.worst = other.worst._replace(place=start + other.worst.place)
        self.valid += other.valid
        self.count += other.count
        self.nonfinite += other.nonfinite
        self.top = max(self.top, other.top)
        self.units += other.units
        self.sum_sq += other.sum_sq
        self.ulp = max(self.ulp, other.ulp)

    def partial(self, total: int, width: int, label: Label | None) -> Partial:
        """Return what is reported of them.

        Args:
            total: positions before the mask.
            width: bits of the compared dtype.
            label: of the worst position, where there is one.
        """
        worst = None
        if self.worst is not None and label is not None:
            _, a, b, _ = self.worst
            number = bits.double if width == 64 else bits.double_of_single
            steps = min(bits.steps(a, b, width), MAX_COUNT)
            worst = Worst(label.position, number(a), number(b), steps, label.token_id, label.sample)
        return Partial(
            valid=self.valid,
            count=self.count,
            nonfinite=self.nonfinite,
            max=None if self.valid == self.nonfinite else bits.double(self.top),
            sum=bits.nearest_double(self.units),
            sum_sq=self.sum_sq if isfinite(self.sum_sq) else None,
            ulp_max=min(self.ulp, MAX_COUNT),
            total=total,
            worst=worst,
        )
