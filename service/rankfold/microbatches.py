"""Which microbatches of one rank and iteration have been reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Microbatches:
    """A set of microbatch numbers, small while they are those from 0 on, as they mostly are."""

    __slots__ = ("_others", "_run")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._run = 0
        self._others: set[int] | None = None  # most never need one
        for number in numbers:
            self.add(number)

    @classmethod
    def first(cls, count: int) -> Microbatches:
        """Return the numbers from 0 to below `count`."""
        known = cls()
        known._run = count
        return known

    @property
    def highest(self) -> int:
        """The largest number; -1 where there is none."""
        return max(self._others) if self._others else self._run - 1

    def add(self, number: int) -> None:
        """Enter a number; entering it again changes nothing."""
        if number > self._run:
            if self._others is None:
                self._others = set()
            self._others.add(number)
        elif number == self._run:
            self._run += 1
            while self._others and self._run in self._others:
                self._others.remove(self._run)
                self._run += 1

    def go_on(self, numbers: list[int], limit: int | None) -> bool:
        """Enter numbers that follow the ones from 0 on, below a limit.

        Returns:
            False, and nothing is entered, where they are others.
        """
        run, end = self._run, self._run + len(numbers)
        if self._others or (limit is not None and end > limit):
            return False
        if numbers != list(range(run, end)):
            return False
        self._run = end
        return True

    def __contains__(self, number: int) -> bool:
        return number < self._run or (self._others is not None and number in self._others)

    def __len__(self) -> int:
        return self._run + len(self._others or ())

    def __iter__(self) -> Iterator[int]:
        yield from range(self._run)
        yield from sorted(self._others or ())
