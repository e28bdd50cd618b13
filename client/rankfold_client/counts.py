"""Counts microbatches, so that a trainer need not number them."""

from __future__ import annotations

from collections import defaultdict

# How many iterations are remembered, for trainers that go back and forth between some.
REMEMBERED = 64


class Counts:
    """How many microbatches each name had, per iteration."""

    def __init__(self) -> None:
        self._counts: dict[int, defaultdict[str, int]] = {}

    def count(self, iteration: int, name: str, microbatch: int | None) -> int:
        """Return the microbatch's index, the next one where None is given."""
        if iteration not in self._counts:
            self._counts[iteration] = defaultdict(int)
            while len(self._counts) > REMEMBERED:
                del self._counts[next(iter(self._counts))]
        names = self._counts[iteration]
        index = names[name] if microbatch is None else microbatch
        names[name] = max(names[name], index + 1)
        return index

    def largest(self, iteration: int) -> int:
        """Return the largest number of microbatches that any name had."""
        return max(self._counts.get(iteration, {}).values(), default=0)
