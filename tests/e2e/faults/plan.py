"""What every rank reports, as a function of the seed alone: a replay says the same again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

RUN = "faults"
SERIES = ("eval/ref_logprobs", "training/rollout_logprobs")
KINDS = ("clean", "mismatch", "gaps", "sparse", "conflicts")


@dataclass(frozen=True, slots=True)
class PartialStep:
    """One partial with its identity; `worst` is (row, column, a, b, ulp)."""

    attempt: int
    rank: int
    iteration: int
    series: str
    microbatch: int
    valid: int
    count: int
    nonfinite: int
    max: float | None
    sum: float
    sum_sq: float | None = None
    ulp_max: int | None = None
    worst: tuple[int, int, float | str, float, int] | None = None


@dataclass(frozen=True, slots=True)
class ScalarStep:
    """One scalar with its identity; a value that is not finite is the word that JSON holds."""

    attempt: int
    rank: int
    iteration: int
    key: str
    microbatch: int
    value: float | str
    weight: int
    rule: str
    is_global: bool


@dataclass(frozen=True, slots=True)
class CommitStep:
    """The word that a rank's iteration is over."""

    attempt: int
    rank: int
    iteration: int
    microbatches: int


Step = PartialStep | ScalarStep | CommitStep


@dataclass(frozen=True, slots=True)
class Plan:
    """A run of training jobs, as far as a seed decides it.

    Attributes:
        seed: of everything.
        iterations: how many there are.
    """

    seed: int
    iterations: int

    @property
    def kind(self) -> str:
        """What is peculiar about the run."""
        return KINDS[self.seed % len(KINDS)]

    @property
    def world_size(self) -> int:
        """How many ranks it has."""
        return 2 + self.seed % 2

    def steps(self, attempt: int, rank: int, iteration: int) -> list[Step]:
        """Return what a rank says of an iteration, in order."""
        rng = random.Random(f"{self.seed}/{attempt}/{rank}/{iteration}")
        microbatches = rng.choice((0, 1, 2, 3, 4))
        where = (attempt, rank, iteration)
        steps = [
            step
            for microbatch in range(microbatches)
            for step in self._microbatch(rng, where, microbatch, microbatches)
        ]
        # Already reduced: every rank says the same.
        rate = random.Random(f"{self.seed}/{attempt}/{iteration}").uniform(1e-6, 1e-4)
        steps.append(ScalarStep(*where, "lr", 0, rate, 1, "last", True))
        return [*steps, CommitStep(*where, microbatches)]

    def _microbatch(
        self, rng: random.Random, where: tuple[int, int, int], microbatch: int, microbatches: int
    ) -> Iterator[Step]:
        for series in SERIES:
            partial = self._partial(rng, (*where, series, microbatch))
            if not self._left_out(rng, partial, microbatches):
                yield partial
                if self.kind == "conflicts" and rng.random() < 0.03:
                    yield _contradiction(partial)
        value = "NaN" if rng.random() < 0.02 else rng.uniform(-1, 1)
        yield ScalarStep(*where, "loss", microbatch, value, rng.randint(0, 512), "mean", False)
        yield ScalarStep(*where, "tokens", microbatch, rng.randint(0, 9) / 8, 1, "sum", False)
        yield ScalarStep(*where, "peak", microbatch, rng.uniform(0, 9), 1, "max", False)

    def _left_out(self, rng: random.Random, partial: PartialStep, microbatches: int) -> bool:
        last = partial.microbatch == microbatches - 1
        if self.kind == "gaps" and last and partial.series == SERIES[1]:
            return rng.random() < 0.05
        return self.kind == "sparse" and partial.series == SERIES[0] and partial.iteration % 3 > 0

    def _partial(self, rng: random.Random, identity: tuple[int, int, int, str, int]) -> PartialStep:
        valid = rng.randint(0, 4096)
        squares = 0.0 if identity[3] == SERIES[1] else None
        if self.kind != "mismatch" or not valid or rng.random() < 0.7:
            return PartialStep(*identity, valid, 0, 0, 0.0 if valid else None, 0.0, squares, 0)
        count = rng.randint(1, valid)
        nonfinite = rng.randint(0, min(count - 1, 1))
        largest = rng.choice((5e-324, 2.0**-27, rng.uniform(1e-9, 9), 10.0 ** rng.randint(0, 100)))
        total = largest * rng.uniform(1, 9)
        worst = (rng.randint(0, 9), rng.randint(0, 9), _value(rng, nonfinite), -0.5, count)
        squares = None if squares is None else total * largest
        return PartialStep(
            *identity, valid, count, nonfinite, largest, total, squares, count, worst
        )


def _value(rng: random.Random, nonfinite: int) -> float | str:
    return "NaN" if nonfinite else rng.choice((-0.5, -0.25, rng.uniform(-9, 0)))


def _contradiction(partial: PartialStep) -> PartialStep:
    """Return the same identity with other content, as from a recompute that is not repeatable."""
    identity = (partial.attempt, partial.rank, partial.iteration, partial.series)
    return PartialStep(*identity, partial.microbatch, 5000, 0, 0, 0.0, 0.0)
