"""Counts microbatches, so that a trainer need not number them."""

from __future__ import annotations

from collections import defaultdict

# How many iterations are remembered, for trainers that go back and forth between some.
REMEMBERED = 64


class Counts:
    """How many microbatches each name had, per iteration.

    Attributes:
        ended: with how many microbatches iterations were ended lately.
    """

    def __init__(self) -> None:
        self._counts: dict[int, defaultdict[str, int]] = {}
        self.ended: dict[int, int] = {}

    def count(self, iteration: int, name: str, microbatch: int | None) -> int:
        """Return the microbatch's index, the next one where None is given.

        A signal's handler that reports too has an index of its own: nothing is called between the
        look and the count, so that it does not come there.
        """
        if iteration not in self._counts:
            self._counts.setdefault(iteration, defaultdict(int))
            while len(self._counts) > REMEMBERED:
                self._counts.pop(next(iter(self._counts)), None)
        names = self._counts[iteration]
        known = names[name]
        index = known if microbatch is None else microbatch
        if index >= known:
            names[name] = index + 1
        return index

    def largest(self, iteration: int) -> int:
        """Return the largest number of microbatches that any name had."""
        return max(self._counts.get(iteration, {}).values(), default=0)

    def end(self, iteration: int, microbatches: int) -> None:
        """Remember with how many microbatches an iteration was ended."""
        self.ended[iteration] = microbatches
        while len(self.ended) > REMEMBERED:
            self.ended.pop(next(iter(self.ended)), None)
