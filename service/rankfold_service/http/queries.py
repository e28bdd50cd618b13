"""The query parameters of the reads, bounded; a parameter that is not known is refused."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from rankfold.coverage import Selection
from rankfold.gate import Policy
from rankfold.ledger import Attempts
from rankfold.names import MAX_NAME
from rankfold.partial import MAX_COUNT, MAX_INDEX

MAX_PAGE = 1000
REPEATABLE = frozenset({"key", "series"})  # of all others one value counts


def _digits(value: Any) -> Any:
    """Let plain digits through: not 1_000, +5 or 5.0, which the framework would take."""
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]{1,20}", value):
        raise ValueError("must be an integer")
    return value


def _attempts(value: Any) -> Attempts:
    if value in ("effective", "all"):
        return value  # type: ignore[no-any-return]
    if isinstance(value, str) and re.fullmatch("[0-9]{1,10}", value) and int(value) <= MAX_INDEX:
        return int(value)
    raise ValueError("must be effective, all or an attempt's number")


Index = Annotated[int, Field(ge=0, le=MAX_INDEX), BeforeValidator(_digits)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT), BeforeValidator(_digits)]
Limit = Annotated[
    int,
    Field(ge=1, le=MAX_PAGE, description="items on a page"),
    BeforeValidator(_digits),
]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Names = Annotated[list[Name], Field(max_length=100)]
Difference = Annotated[float, Field(ge=0, allow_inf_nan=False)]
WhichAttempts = Annotated[
    Attempts,
    PlainValidator(_attempts, json_schema_input_type=Literal["effective", "all"] | Index),
    Field(description="effective (superseded reports left out), all, or an attempt's number"),
]


class Query(BaseModel):
    """Parameters that are known; others are refused."""

    model_config = ConfigDict(extra="forbid")


class NoQuery(Query):
    """No parameters: a mistyped one is refused here too, where it could mean to delete less."""


class NamePage(Query):
    """A page of a list that is ordered by name."""

    limit: Limit = 100
    after: Name | None = Field(None, description="the `next` of the page before")


class NumberPage(Query):
    """A page of a list that is ordered by number."""

    limit: Limit = 100
    after: Index | None = Field(None, description="the `next` of the page before")


class TotalsQuery(Query):
    """Which reports are totalled."""

    attempts: WhichAttempts = "effective"
    rank: Index | None = Field(None, description="this rank only")


class IterationsQuery(NumberPage):
    """Which iterations, keys and reports are shown."""

    key: Names = Field([], description="these keys only; repeatable")
    first: Index | None = Field(None, alias="from", description="from this iteration on")
    last: Index | None = Field(None, alias="to", description="up to this iteration, included")
    rank: Index | None = Field(None, description="this rank only")
    attempts: WhichAttempts = "effective"

    def selection(self) -> Selection:
        """Return what is asked about."""
        return Selection(first=self.first, last=self.last, attempts=self.attempts)


class RanksQuery(NumberPage):
    """Which reports are shown per rank."""

    attempts: WhichAttempts = "effective"


class WorstQuery(NumberPage):
    """Which mismatches are shown."""

    series: Names = Field([], description="these series only; repeatable")
    attempts: WhichAttempts = "effective"


class GateQuery(Query):
    """What is judged, and how strictly."""

    series: Names = Field([], description="these series only; repeatable")
    first: Index | None = Field(None, alias="from", description="from this iteration on")
    last: Index | None = Field(None, alias="to", description="up to this iteration, included")
    attempts: WhichAttempts = "all"
    max_mismatch_count: Count = Field(0, description="more mismatches of a series fail")
    max_diff_max: Difference | None = Field(None, description="a larger |a - b| fails")
    max_diff_mean: Difference | None = Field(None, description="a larger mean |a - b| fails")
    require_finished: bool = Field(False, description="a run that is not finished is incomplete")
    allow_absent: bool = Field(False, description="an iteration without a series is no gap")
    live: bool = Field(False, description="leave iterations in progress out")

    def selection(self) -> Selection:
        """Return what is judged."""
        return Selection(tuple(self.series), self.first, self.last, self.attempts)

    def policy(self) -> Policy:
        """Return what the caller demands."""
        return Policy(
            max_mismatch_count=self.max_mismatch_count,
            max_diff_max=self.max_diff_max,
            max_diff_mean=self.max_diff_mean,
            require_finished=self.require_finished,
            allow_absent=self.allow_absent,
            live=self.live,
        )
