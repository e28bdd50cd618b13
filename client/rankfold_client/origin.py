"""Whose reports these are: a process sends its own, and what a dead one of its rank left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(eq=False, slots=True)
class Origin:
    """One process of one rank.

    Attributes:
        header: the members that its reports begin with; among them project, run, attempt, rank.
        meta: goes with its first report.
        dropped: how many of its items were given up; never falls.
        told: how many of those the aggregator has been told of.
    """

    header: dict[str, Any]
    meta: dict[str, str] | None = None
    dropped: int = 0
    told: int = 0

    @property
    def untold(self) -> bool:
        """Whether the aggregator does not know yet how many were given up."""
        return self.dropped != self.told
