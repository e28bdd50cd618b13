"""The shape of every answer, as the plain JSON objects that readers get."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

GateWord = Literal["pass", "fail", "invalid", "incomplete", "no_data"]
StateWord = Literal["running", "finished", "stale"]
RuleWord = Literal["sum", "max", "min", "mean", "last", "std"]


class ReceiptAnswer(TypedDict):
    """What became of a report's partials and scalars."""

    accepted: int
    duplicates: int
    conflicts: int


class ProjectAnswer(TypedDict):
    """A project."""

    project: str
    runs: int


class ProjectsAnswer(TypedDict):
    """A page of projects; `next` is the `after` of the next page, or null."""

    items: list[ProjectAnswer]
    next: str | None


class AttemptAnswer(TypedDict):
    """One launch of a run."""

    attempt: int
    world_size: int | None
    finished: bool
    first_report: float
    last_report: float
    first_iteration: int | None
    last_iteration: int | None
    superseded_from: int | None
    reporting: int
    dropped: int
    conflicts: int
    meta: dict[str, str]


class RunAnswer(TypedDict):
    """A run as lists show it; times are seconds since the epoch; the gate is the live one."""

    project: str
    run: str
    state: StateWord
    attempts: list[AttemptAnswer]
    world_size: int | None
    last_iteration: int | None
    last_report: float
    gate: GateWord


class RunName(TypedDict):
    """A run by name alone."""

    project: str
    run: str


class RunsAnswer(TypedDict):
    """A page of runs; `damaged`, where there are any, names those that cannot be read."""

    items: list[RunAnswer]
    next: str | None
    damaged: NotRequired[list[RunName]]


class KeyAnswer(TypedDict):
    """A key's value and what it was folded from; a scalar has no series, `valid` or `max` field.

    Of a series, `count`, `valid`, `nonfinite`, `sum` and `max` are the folded fields. Of a
    scalar, `count` is the number of finite values, `weight` the sum of their weights.
    """

    value: float | int | str | None
    rule: RuleWord
    series: str | None
    count: int
    valid: int | None
    nonfinite: int
    sum: float | str | None
    max: float | None
    weight: NotRequired[int]


class TotalsAnswer(TypedDict):
    """Every key of a run."""

    project: str
    run: str
    attempts: str | int
    rank: int | None
    keys: dict[str, KeyAnswer]


class IterationAnswer(TypedDict):
    """One iteration's values."""

    iteration: int
    complete: bool
    keys: dict[str, float | int | str | None]


class IterationsAnswer(TypedDict):
    """A page of iterations, ascending."""

    items: list[IterationAnswer]
    next: int | None


class MissingAnswer(TypedDict):
    """What a rank owes of an iteration: its commit (series null) or microbatches."""

    iteration: int
    attempt: int
    rank: int
    series: str | None
    microbatches: list[int]


class RankAnswer(TypedDict):
    """One rank of the latest attempt that it reported in."""

    rank: int
    attempt: int
    last_iteration: int | None
    last_report: float | None
    dropped: int
    missing: list[MissingAnswer]
    keys: dict[str, float | int | str | None]


class RanksAnswer(TypedDict):
    """A page of ranks, ascending; expected ranks that never reported are among them.

    What is missing was looked for in the first incomplete iterations, up to `missing_until`; null
    says that there are no more.
    """

    items: list[RankAnswer]
    missing_until: int | None
    next: int | None


class WorstAnswer(TypedDict):
    """A mismatch and where it was; `a` and `b` are "NaN" or "Infinity" words where non-finite."""

    series: str
    attempt: int
    rank: int
    iteration: int
    microbatch: int
    position: list[int]
    a: float | str
    b: float | str
    ulp: int
    token_id: NotRequired[int]
    sample: NotRequired[str]


class WorstsAnswer(TypedDict):
    """A page of the worst tokens, largest first."""

    items: list[WorstAnswer]
    next: int | None


class SeriesGate(TypedDict):
    """One series' figures in a verdict."""

    mismatch_count: int
    nonfinite_count: int
    valid_count: int
    diff_max: float | None
    diff_mean: float | None


class IterationsGate(TypedDict):
    """Iterations in a verdict; the lists hold the first 100, the counts are of all."""

    first: int | None
    last: int | None
    complete: int
    incomplete: list[int]
    incomplete_count: int
    absent: list[int]
    absent_count: int
    in_progress: list[int]


class RanksGate(TypedDict):
    """Ranks in a verdict; `expected_from` says whether a world size is known."""

    expected: int
    expected_from: Literal["world_size", "reports"]
    reporting: int
    missing: list[int]


class ConflictAnswer(TypedDict):
    """One conflict, in words."""

    attempt: int
    iteration: int
    rank: int | None
    kind: Literal["partial", "scalar", "commit"]
    name: str
    reason: str


class GateAnswer(TypedDict):
    """The verdict on a run, and why."""

    project: str
    run: str
    gate: GateWord
    state: StateWord
    live: bool
    reasons: list[str]
    series: dict[str, SeriesGate]
    iterations: IterationsGate
    ranks: RanksGate
    missing: list[MissingAnswer]
    conflicts: int
    conflict_details: list[ConflictAnswer]
    dropped: int
    worst: list[WorstAnswer]


class FinishAnswer(TypedDict):
    """An attempt that is marked finished."""

    project: str
    run: str
    attempt: int
    finished: bool


class DeleteAnswer(TypedDict):
    """A run that was deleted."""

    project: str
    run: str
    deleted: bool


class FieldErrorAnswer(TypedDict):
    """A fault of a request."""

    pointer: str
    reason: str


class ProblemAnswer(TypedDict):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    errors: NotRequired[list[FieldErrorAnswer]]
    request_id: NotRequired[str]


JsonObject = dict[str, Any]
