"""A set of iteration numbers, small while they follow each other, as they mostly do."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence


class Iterations:
    """A set of iteration numbers in ascending order, kept as runs of numbers without a gap.

    Appending, counting a range and finding a position cost the logarithm of the number of runs.
    """

    __slots__ = ("_before", "_first", "_last")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        # Of each run its first number, its last one, and how many numbers come before it.
        self._first: list[int] = []
        self._last: list[int] = []
        self._before: list[int] = []
        for number in numbers:
            self.add(number)

    @classmethod
    def of_runs(cls, runs: Iterable[Sequence[int]]) -> Iterations:
        """Return the set of which `runs` gave these: ascending, with gaps between."""
        found = cls()
        for first, last in runs:
            found._before.append(len(found))
            found._first.append(first)
            found._last.append(last)
        return found

    @classmethod
    def union(cls, sets: Iterable[Iterations]) -> Iterations:
        """Return a new set of all numbers of several ones."""
        united: list[list[int]] = []
        for first, last in sorted(run for each in sets for run in each.runs()):
            if united and first <= united[-1][1] + 1:
                united[-1][1] = max(united[-1][1], last)
            else:
                united.append([first, last])
        return cls.of_runs(united)

    def without(self, other: Iterations) -> Iterations:
        """Return a new set of the numbers that are not in another one."""
        if self._first == other._first and self._last == other._last:
            return Iterations()
        rest: list[list[int]] = []
        for first, last in self.runs():
            start = first
            for run in range(max(bisect_right(other._first, first) - 1, 0), len(other._first)):
                if other._first[run] > last:
                    break
                if other._first[run] > start:
                    rest.append([start, other._first[run] - 1])
                start = max(start, other._last[run] + 1)
            if start <= last:
                rest.append([start, last])
        return Iterations.of_runs(rest)

    def runs(self) -> list[list[int]]:
        """Return the [first, last] of each run, ascending."""
        return [[first, last] for first, last in zip(self._first, self._last, strict=True)]

    def add(self, number: int) -> None:
        """Enter a number; entering it again changes nothing."""
        if not self._last or number > self._last[-1] + 1:
            self._before.append(len(self))
            self._first.append(number)
            self._last.append(number)
        elif number == self._last[-1] + 1:
            self._last[-1] = number
        elif number < self._first[-1] and number not in self:
            self._insert(number)

    def _insert(self, number: int) -> None:
        """Enter a new number somewhere before the end."""
        after = bisect_right(self._first, number)
        joins_before = after > 0 and self._last[after - 1] == number - 1
        joins_after = self._first[after] == number + 1
        if joins_before and joins_after:
            self._last[after - 1] = self._last.pop(after)
            del self._first[after], self._before[after]
        elif joins_before:
            self._last[after - 1] = number
        elif joins_after:
            self._first[after] = number
        else:
            for column in (self._first, self._last, self._before):
                column.insert(after, number)
        self._count_from(max(after - 1, 0))

    def _count_from(self, run: int) -> None:
        """Count anew how many numbers come before each run from one on."""
        count = self._before[run] if 0 < run < len(self._before) else 0
        del self._before[run:]
        for at in range(run, len(self._first)):
            self._before.append(count)
            count += self._last[at] - self._first[at] + 1

    def _below(self, number: int) -> int:
        """Return how many of the set are smaller than a number."""
        run = bisect_left(self._first, number) - 1
        if run < 0:
            return 0
        return self._before[run] + min(number - self._first[run], self._size(run))

    def _size(self, run: int) -> int:
        return self._last[run] - self._first[run] + 1

    def within(self, first: int | None, last: int | None) -> range:
        """Return the positions of the numbers from `first` to `last`, both included."""
        start = 0 if first is None else self._below(first)
        stop = len(self) if last is None else self._below(last + 1)
        return range(start, max(start, stop))

    def between(self, first: int | None, last: int | None) -> Iterator[int]:
        """Yield the numbers from `first` to `last`, both included, ascending."""
        return map(self.at, self.within(first, last))

    def at(self, position: int) -> int:
        """Return the number at a position in ascending order."""
        run = bisect_right(self._before, position) - 1
        return self._first[run] + position - self._before[run]

    def descending(self) -> Iterator[int]:
        """Yield all, largest first."""
        for first, last in zip(reversed(self._first), reversed(self._last), strict=True):
            yield from range(last, first - 1, -1)

    def __contains__(self, number: int) -> bool:
        run = bisect_right(self._first, number) - 1
        return run >= 0 and number <= self._last[run]

    def __len__(self) -> int:
        return self._before[-1] + self._size(-1) if self._first else 0

    def __iter__(self) -> Iterator[int]:
        for first, last in zip(self._first, self._last, strict=True):
            yield from range(first, last + 1)
