"""The oracle's books: all that was applied to a run, and which of it counts for a reader."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .plan import CommitStep, PartialStep, ScalarStep, Step

Attempts = str | int


@dataclass
class Books:
    """What was applied of a run.

    Attributes:
        world_size: how many ranks it has.
        heard: by attempt, the ranks that have reported anything at all.
        partials: by identity; the first word stands.
        scalars: likewise; the identity of one that is already reduced has no rank.
        commits: by (attempt, rank, iteration), the number of microbatches.
        conflicts: by attempt, the identities in conflict.
        touched: by attempt and rank, the iterations that were spoken of.
    """

    world_size: int
    heard: dict[int, set[int]] = field(default_factory=dict)
    partials: dict[tuple[Any, ...], PartialStep] = field(default_factory=dict)
    scalars: dict[tuple[Any, ...], ScalarStep] = field(default_factory=dict)
    commits: dict[tuple[int, int, int], int] = field(default_factory=dict)
    conflicts: dict[int, set[tuple[Any, ...]]] = field(default_factory=dict)
    touched: dict[tuple[int, int], set[int]] = field(default_factory=dict)

    def apply(self, who: tuple[int, int], steps: Iterable[Step]) -> None:
        """Enter what one rank reported."""
        attempt, rank = who
        self.heard.setdefault(attempt, set()).add(rank)
        self.conflicts.setdefault(attempt, set())
        for step in steps:
            self.touched.setdefault(who, set()).add(step.iteration)
            match step:
                case PartialStep():
                    where = (*who, step.iteration, step.series, step.microbatch)
                    if self.partials.setdefault(where, step) != step:
                        self.conflicts[attempt].add(where)
                case ScalarStep():
                    shard = None if step.is_global else rank
                    where = (attempt, shard, step.iteration, step.key, step.microbatch)
                    known = self.scalars.setdefault(where, step)
                    assert known.value == step.value, "a plan contradicts itself"
                case CommitStep():
                    self.commits[attempt, rank, step.iteration] = step.microbatches

    @property
    def attempts(self) -> list[int]:
        """All attempts, ascending."""
        return sorted(self.heard)

    def chosen(self, attempts: Attempts) -> list[int]:
        """Return the attempts that a reader asks for."""
        return [attempts] if isinstance(attempts, int) else self.attempts

    def iterations(self, attempt: int) -> list[int]:
        """Return the iterations that an attempt has spoken of, ascending."""
        return sorted({i for (a, _), seen in self.touched.items() if a == attempt for i in seen})

    def cut(self, attempt: int) -> float:
        """Return from which iteration on an attempt is superseded."""
        later = (self.iterations(a) for a in self.attempts if a > attempt)
        return min((seen[0] for seen in later if seen), default=math.inf)

    def counts(self, attempts: Attempts, attempt: int, iteration: int) -> bool:
        """Whether a reader who asks for these attempts is shown an attempt's iteration."""
        if attempts == "effective":
            return iteration < self.cut(attempt)
        return attempts in ("all", attempt)

    def selected(
        self,
        attempts: Attempts,
        rank: int | None = None,
        first: float = 0,
        last: float = math.inf,
    ) -> tuple[list[PartialStep], list[ScalarStep]]:
        """Return the partials and scalars that a reader asks for."""
        cuts = {a: self.cut(a) for a in self.attempts}

        def shown(step: PartialStep | ScalarStep) -> bool:
            if not first <= step.iteration <= last:
                return False
            if attempts == "effective":
                return step.iteration < cuts[step.attempt]
            return attempts in ("all", step.attempt)

        return (
            [p for p in self.partials.values() if rank in (None, p.rank) and shown(p)],
            [
                s
                for s in self.scalars.values()
                if (rank is None or (s.rank == rank and not s.is_global)) and shown(s)
            ],
        )
