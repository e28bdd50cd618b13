"""Which runs keep pages in memory after they were saved, and how many."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from rankfold.ledger import Ledger
from rankfold_service.store import Name
from rankfold_service.store.shelf import HOT_ITERATIONS

# Cells and contents; each takes about half a kilobyte.
MOST_KEPT = 50_000


class _Kept(NamedTuple):
    """A run, how long the journal was when it was saved, and how much it kept."""

    ledger: Ledger
    at: int
    size: int


class Warm:
    """The runs that were saved lately: those keep the pages of their newest iterations.

    A run that does not report again for a while keeps none. So memory is bounded by what arrives
    meanwhile, and by a number of cells and contents over all runs, not by how many runs there are.

    Args:
        keep: of how many iterations of an attempt at most.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self.clear()

    def clear(self) -> None:
        """Forget every run."""
        self._size = 0
        self._kept: dict[Name, _Kept] = {}

    @property
    def has_room(self) -> bool:
        """Whether more may be kept."""
        return self._size < MOST_KEPT

    def add(self, name: Name, ledger: Ledger, at: int) -> None:
        """Let go of what a run has in memory and the tables have too, but for the newest.

        Args:
            name: of the run.
            ledger: of the run.
            at: how long the journal was when it was saved.
        """
        self.drop(name)
        size = _forget(ledger, self._keep)
        if self._size + size > MOST_KEPT:
            size = _forget(ledger, min(self._keep, HOT_ITERATIONS))
        self._kept[name] = _Kept(ledger, at, size)
        self._size += size

    def drop(self, name: Name) -> None:
        """Forget a run."""
        kept = self._kept.pop(name, None)
        if kept is not None:
            self._size -= kept.size

    def cool(self, before: int, reporting: Container[Name]) -> None:
        """Let go of the pages of runs that were saved before a while and are not reporting."""
        while self._kept:
            name, kept = next(iter(self._kept.items()))
            if kept.at >= before:
                return
            self.drop(name)
            if name not in reporting:
                _forget(kept.ledger, 0)


def _forget(ledger: Ledger, keep: int) -> int:
    """Let go of saved pages; return how many cells and contents stay."""
    for attempt in ledger.attempts.values():
        attempt.forget_pages(keep)
    return sum(attempt.held_size() for attempt in ledger.attempts.values())
