"""The port to where runs are kept; `open_store` returns the adapter that a URL names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rankfold.errors import NotFound, RankfoldError
from rankfold.ledger import Ledger
from rankfold.wire import Receipt, Report

# A run's project and name.
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A report and when it arrived, in seconds since the epoch."""

    report: Report
    now: float


class Store(Protocol):
    """Where runs are kept. One thread calls it, one call at a time.

    Every write is durable when its call returns, and visible to the calls after it. A write
    that raises has changed nothing.
    """

    def ingest(self, arrivals: Sequence[Arrival]) -> list[Receipt | RankfoldError]:
        """Take several reports in one commit; each whole or not at all.

        Returns:
            for each arrival its receipt, or the error for which nothing of it was applied.

        Raises:
            StoreUnavailable: the commit failed; nothing of any arrival was applied.
            StoreDamaged: likewise, and others may be taken without those whose books are damaged.
        """
        ...

    def finish(self, project: str, run: str, attempt: int) -> None:
        """Mark an attempt finished; marking it again changes nothing.

        Raises:
            NotFound: the run or the attempt is not known.
            StoreUnavailable: the commit failed.
            StoreDamaged: what the store has of the run cannot be read.
        """
        ...

    def delete(self, project: str, run: str) -> None:
        """Forget a run; a later report starts it anew.

        Raises:
            NotFound: the run is not known.
            StoreUnavailable: the commit failed.
        """
        ...

    def names(self) -> list[Name]:
        """Return project and name of every run, sorted."""
        ...

    def versions(self) -> dict[Name, Hashable]:
        """Return for every run, sorted by name, what is another thing once the run has changed."""
        ...

    def read_ahead(self, names: Sequence[Name]) -> None:
        """Prepare for reading these runs next, before any other call; what fails, `run` tells.

        Raises:
            StoreUnavailable: nothing can be read now.
        """
        ...

    def run(self, project: str, run: str) -> Ledger:
        """Return one run as it is now, good until the next call.

        Raises:
            NotFound: the run is not known.
            StoreDamaged: what the store has of it cannot be read.
        """
        ...

    def size(self, beyond: int = 0) -> int:
        """Return how many bytes all runs take on disk.

        Args:
            beyond: what is not more than this may be told as less than it is, if that is faster.

        Raises:
            StoreUnavailable: it cannot be told now.
        """
        ...

    def probe(self) -> None:
        """Write something and make it durable, as a report would be.

        Raises:
            StoreUnavailable: that failed.
        """
        ...

    def maintain(self) -> None:
        """Do a bounded piece of housekeeping; called after commits and reads, once answered."""
        ...

    def close(self) -> None:
        """Make everything tidy for the next start; further calls are not allowed."""
        ...


def no_run(project: str, run: str) -> NotFound:
    """Return what every store says of a run that it does not know."""
    return NotFound(f"no run {run!r} is known in project {project!r}")
