"""Which runs keep pages in memory after they were saved, and how many."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from rankfold.ledger import Ledger
from rankfold_service.store import Name
from rankfold_service.store.shelf import HOT_ITERATIONS

# Each takes about a kilobyte.
MOST_CELLS_KEPT = 50_000


class _Kept(NamedTuple):
    """A run, how long the journal was when it was saved, and how many cells it kept."""

    ledger: Ledger
    at: int
    cells: int


class Warm:
    """The runs that were saved lately: those keep the pages of their newest iterations.

    A run that does not report again for a while keeps none. So memory is bounded by what arrives
    meanwhile, and by a number of cells over all runs, not by how many runs there are.

    Args:
        keep: of how many iterations of an attempt at most.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self.clear()

    def clear(self) -> None:
        """Forget every run."""
        self._cells = 0
        self._kept: dict[Name, _Kept] = {}

    def add(self, name: Name, ledger: Ledger, at: int) -> None:
        """Let go of what a run has in memory and the tables have too, but for the newest.

        Args:
            name: of the run.
            ledger: of the run.
            at: how long the journal was when it was saved.
        """
        self.drop(name)
        cells = _forget(ledger, self._keep)
        if self._cells + cells > MOST_CELLS_KEPT:
            cells = _forget(ledger, min(self._keep, HOT_ITERATIONS))
        self._kept[name] = _Kept(ledger, at, cells)
        self._cells += cells

    def drop(self, name: Name) -> None:
        """Forget a run."""
        kept = self._kept.pop(name, None)
        if kept is not None:
            self._cells -= kept.cells

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
    """Let go of saved pages; return how many cells stay."""
    for attempt in ledger.attempts.values():
        attempt.forget_pages(keep)
    return sum(attempt.held_cells() for attempt in ledger.attempts.values())
