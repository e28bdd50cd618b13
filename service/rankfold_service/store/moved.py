"""What is told of a run that was moved from one store into another."""

from __future__ import annotations

from dataclasses import dataclass

from rankfold_service.store import Name


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of one run.

    Attributes:
        name: its project and name.
        ranks: how many have reported.
        iterations: how many it has, over all attempts.
        was_there: it was there before, and was left as it is.
        different: what about it is other there, in words, or None.
        number: which of the runs it is, from 1.
        of: how many runs there are.
    """

    name: Name
    ranks: int
    iterations: int
    was_there: bool
    different: str | None
    number: int
    of: int
