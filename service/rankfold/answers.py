"""The shape of every answer, as the plain JSON objects that readers get."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

from rankfold.partial import NonfiniteWord


class Least(NamedTuple):
    """Says of a number that it is not below this one."""

    value: int


class Length(NamedTuple):
    """Says of a list that it has so many items."""

    items: int


Count = Annotated[int, Least(0)]
Size = Annotated[float, Least(0)]
Position = Annotated[list[Count], Length(2)]
Number = float | NonfiniteWord
Value = float | int | NonfiniteWord | None
GateWord = Literal["pass", "fail", "invalid", "incomplete", "no_data"]
StateWord = Literal["running", "finished", "stale"]
RuleWord = Literal["sum", "max", "min", "mean", "last", "std"]


class ReceiptAnswer(TypedDict):
    """What became of a report's partials and scalars."""

    accepted: Count
    duplicates: Count
    conflicts: Count


class ProjectAnswer(TypedDict):
    """A project."""

    project: str
    runs: Count


class ProjectsAnswer(TypedDict):
    """A page of projects; `next` is the `after` of the next page, or null."""

    items: list[ProjectAnswer]
    next: str | None


class AttemptAnswer(TypedDict):
    """One launch of a run."""

    attempt: Count
    world_size: Count | None
    finished: bool
    first_report: float
    last_report: float
    first_iteration: Count | None
    last_iteration: Count | None
    superseded_from: Count | None
    reporting: Count
    dropped: Count
    conflicts: Count
    meta: dict[str, str]


class RunAnswer(TypedDict):
    """A run as lists show it; times are seconds since the epoch; the gate is the live one."""

    project: str
    run: str
    state: StateWord
    attempts: list[AttemptAnswer]
    world_size: Count | None
    last_iteration: Count | None
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

    value: Value
    rule: RuleWord
    series: str | None
    count: Count
    valid: Count | None
    nonfinite: Count
    sum: Number | None
    max: float | None
    weight: NotRequired[Count]


class TotalsAnswer(TypedDict):
    """Every key of a run."""

    project: str
    run: str
    attempts: Literal["effective", "all"] | Count
    rank: Count | None
    keys: dict[str, KeyAnswer]


class IterationAnswer(TypedDict):
    """One iteration's values."""

    iteration: Count
    complete: bool
    keys: dict[str, Value]


class IterationsAnswer(TypedDict):
    """A page of iterations, ascending."""

    items: list[IterationAnswer]
    next: Count | None


class MissingAnswer(TypedDict):
    """What a rank owes of an iteration: its commit (series null) or microbatches."""

    iteration: Count
    attempt: Count
    rank: Count
    series: str | None
    microbatches: list[Count]


class RankAnswer(TypedDict):
    """One rank of the latest attempt that it reported in."""

    rank: Count
    attempt: Count
    last_iteration: Count | None
    last_report: float | None
    dropped: Count
    missing: list[MissingAnswer]
    keys: dict[str, Value]


class RanksAnswer(TypedDict):
    """A page of ranks, ascending; expected ranks that never reported are among them.

    What is missing was looked for in the first incomplete iterations, up to `missing_until`; null
    says that there are no more.
    """

    items: list[RankAnswer]
    missing_until: Count | None
    next: Count | None


class WorstAnswer(TypedDict):
    """A mismatch and where it was; `a` and `b` are "NaN" or "Infinity" words where non-finite."""

    series: str
    attempt: Count
    rank: Count
    iteration: Count
    microbatch: Count
    position: Position
    a: Number
    b: Number
    ulp: Count
    token_id: NotRequired[Count]
    sample: NotRequired[str]


class WorstsAnswer(TypedDict):
    """A page of the worst tokens, largest first."""

    items: list[WorstAnswer]
    next: Count | None


class SeriesGate(TypedDict):
    """One series' figures in a verdict."""

    mismatch_count: Count
    nonfinite_count: Count
    valid_count: Count
    diff_max: Size | None
    diff_mean: Size | None


class IterationsGate(TypedDict):
    """Iterations in a verdict; the lists hold the first 100, the counts are of all."""

    first: Count | None
    last: Count | None
    complete: Count
    incomplete: list[Count]
    incomplete_count: Count
    absent: list[Count]
    absent_count: Count
    in_progress: list[Count]


class RanksGate(TypedDict):
    """Ranks in a verdict; `expected_from` says whether a world size is known."""

    expected: Count
    expected_from: Literal["world_size", "reports"]
    reporting: Count
    missing: list[Count]


class ConflictAnswer(TypedDict):
    """One conflict, in words."""

    attempt: Count
    iteration: Count
    rank: Count | None
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
    conflicts: Count
    conflict_details: list[ConflictAnswer]
    dropped: Count
    worst: list[WorstAnswer]


class FinishAnswer(TypedDict):
    """An attempt that is marked finished."""

    project: str
    run: str
    attempt: Count
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
