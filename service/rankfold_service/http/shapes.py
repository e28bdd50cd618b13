"""What request bodies may hold: read, checked and described by the same types."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeVar

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import (
    AllowInfNan,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    with_config,
)
from typing_extensions import TypedDict  # pydantic takes no other on Python 3.11

from rankfold.answers import JsonObject
from rankfold.names import MAX_NAME
from rankfold.partial import MAX_COUNT, MAX_INDEX, NonfiniteWord
from rankfold.wire import MAX_META, MAX_META_VALUE

_CONTROL = r"\x00-\x1f\x7f-\x9f"


def _name(description: str, pattern: str) -> Any:
    """Describe a name; `rankfold.wire.name_fault` checks each distinct one once."""
    schema: JsonObject = {"minLength": 1, "maxLength": MAX_NAME, "pattern": pattern}
    return Field(description=description, json_schema_extra=schema)


def _text(most: int, least: int = 0) -> Any:
    return StringConstraints(min_length=least, max_length=most, pattern=f"^[^{_CONTROL}]*$")


PATH_NAME = _name("neither '.' nor '..'", rf"^(?!\.{{1,2}}$)[^/{_CONTROL}]+$")

T = TypeVar("T")
# No coercion, no unknown members.
exactly = with_config(ConfigDict(strict=True, extra="forbid"))
# The first fault of a list is enough: naming each in a list of a million would cost gigabytes.
Many = Annotated[list[T], Field(fail_fast=True)]
EITHER = Field(union_mode="left_to_right", description="an array of objects, or columns")

Index = Annotated[int, Ge(0), Le(MAX_INDEX)]
Count = Annotated[int, Ge(0), Le(MAX_COUNT)]
Size = Annotated[float, Ge(0), AllowInfNan(False)]
Number = Annotated[float, AllowInfNan(False)] | NonfiniteWord
Rule = Literal["sum", "max", "min", "mean", "last"]
PathName = Annotated[str, PATH_NAME]
Name = Annotated[str, _name("any Unicode but control characters", f"^[^{_CONTROL}]+$")]
Meta = Annotated[
    dict[Annotated[str, _text(MAX_NAME, 1)], Annotated[str, _text(MAX_META_VALUE)]],
    MaxLen(MAX_META),
    Field(
        description="short strings that describe the attempt",
        # The names' pattern stands beside it, and would let through all that it does not fit.
        json_schema_extra={"additionalProperties": False},
    ),
]


@exactly
class Worst(TypedDict):
    """Where the largest mismatch of a microbatch was."""

    position: Annotated[list[Count], MinLen(2), MaxLen(2)]
    a: Number
    b: Number
    ulp: Count
    token_id: NotRequired[Count | None]
    sample: NotRequired[Annotated[str, _text(MAX_META_VALUE)] | None]


@exactly
class PartialRow(TypedDict):
    """The summary of one microbatch of one series."""

    series: Name
    iteration: Index
    microbatch: Index
    count: Count
    valid: Count
    max: Size | None
    sum: Size
    nonfinite: NotRequired[Count]
    sum_sq: NotRequired[Size | None]
    ulp_max: NotRequired[Count | None]
    total: NotRequired[Count | None]
    worst: NotRequired[Worst | None]


@exactly
class PartialColumns(TypedDict):
    """Many partials, as arrays of one length."""

    series: Many[Name]
    iteration: Many[Index]
    microbatch: Many[Index]
    count: Many[Count]
    valid: Many[Count]
    max: Many[Size | None]
    sum: Many[Size]
    nonfinite: NotRequired[Many[Count]]
    sum_sq: NotRequired[Many[Size | None]]
    ulp_max: NotRequired[Many[Count | None]]
    total: NotRequired[Many[Count | None]]
    worst: NotRequired[Many[Worst | None]]


# `global` is a word of the language, so these two are made by calls.
ScalarRow = TypedDict(
    "ScalarRow",
    {
        "key": Name,
        "iteration": Index,
        "microbatch": Index,
        "value": Number,
        "weight": NotRequired[Count],
        "rule": NotRequired[Rule | None],
        "global": NotRequired[bool],
    },
)
ScalarColumns = TypedDict(
    "ScalarColumns",
    {
        "key": Many[Name],
        "iteration": Many[Index],
        "microbatch": Many[Index],
        "value": Many[Number],
        "weight": NotRequired[Many[Count]],
        "rule": NotRequired[Many[Rule | None]],
        "global": NotRequired[Many[bool]],
    },
)


for _scalars in (ScalarRow, ScalarColumns):
    exactly(_scalars)


@exactly
class CommitRow(TypedDict):
    """How many microbatches an iteration had on the rank that reports."""

    iteration: Index
    microbatches: Index


@exactly
class CommitColumns(TypedDict):
    """Many commits, as arrays of one length."""

    iteration: Many[Index]
    microbatches: Many[Index]


@exactly
class ReportBody(TypedDict):
    """One rank's report; each list is an array of objects or one object of arrays."""

    project: NotRequired[PathName]
    run: PathName
    attempt: NotRequired[Index]
    rank: Index
    world_size: NotRequired[Annotated[int, Ge(1), Le(MAX_INDEX)] | None]
    meta: NotRequired[Meta]
    dropped: NotRequired[Count]
    partials: NotRequired[Annotated[Many[PartialRow] | PartialColumns, EITHER]]
    scalars: NotRequired[Annotated[Many[ScalarRow] | ScalarColumns, EITHER]]
    commits: NotRequired[Annotated[Many[CommitRow] | CommitColumns, EITHER]]


@exactly
class FinishBody(TypedDict):
    """Which attempt is over."""

    attempt: Index


REPORT: TypeAdapter[ReportBody] = TypeAdapter(ReportBody)
FINISH: TypeAdapter[FinishBody] = TypeAdapter(FinishBody)

_HEADER_EXAMPLE: JsonObject = {
    "project": "default",
    "run": "qwen3-8b-zero-diff",
    "attempt": 0,
    "rank": 3,
    "world_size": 8,
}
_PARTIAL_EXAMPLE: JsonObject = {
    "series": "training/rollout_logprobs",
    "iteration": 12,
    "microbatch": 0,
    "count": 1,
    "max": 7.450580596923828e-09,
    "sum": 7.450580596923828e-09,
    "valid": 4096,
}
_SCALAR_EXAMPLE: JsonObject = {
    "key": "actor/pg_loss/mean",
    "iteration": 12,
    "microbatch": 0,
    "value": 0.25,
    "weight": 512,
    "rule": "mean",
}
_COMMIT_EXAMPLE: JsonObject = {"iteration": 12, "microbatches": 8}


def _columnar(row: JsonObject) -> JsonObject:
    return {name: [value] for name, value in row.items()}


EXAMPLES: dict[str, JsonObject] = {
    "rows": {
        **_HEADER_EXAMPLE,
        "partials": [_PARTIAL_EXAMPLE],
        "scalars": [_SCALAR_EXAMPLE],
        "commits": [_COMMIT_EXAMPLE],
    },
    "columns": {
        **_HEADER_EXAMPLE,
        "partials": _columnar(_PARTIAL_EXAMPLE),
        "scalars": _columnar(_SCALAR_EXAMPLE),
        "commits": _columnar(_COMMIT_EXAMPLE),
    },
}
