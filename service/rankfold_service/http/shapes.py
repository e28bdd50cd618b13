"""What a request body may contain: the one table behind decoding, refusals and the description."""

from __future__ import annotations

from rankfold.partial import MAX_COUNT, MAX_INDEX
from rankfold.rules import SCALAR_RULES
from rankfold.wire import MAX_META_VALUE, MAX_NAME
from rankfold_service.http.kinds import (
    Boolean,
    Choice,
    Integer,
    Member,
    Meta,
    Name,
    Nullable,
    Number,
    Pair,
    Size,
    Text,
)
from rankfold_service.http.tables import Listing, Table

INDEX = Integer(0, MAX_INDEX)
COUNT = Integer(0, MAX_COUNT)
PATH_NAME = Name(in_path=True)

WORST = Table(
    {
        "position": Member(Pair(COUNT), describe="row and column in the compared tensors"),
        "a": Member(Number(), describe="the trainer's value"),
        "b": Member(Number(), describe="the rollout's value"),
        "ulp": Member(COUNT, describe="distance in units in the last place"),
        "token_id": Member(Nullable(COUNT), required=False),
        "sample": Member(Nullable(Text(MAX_META_VALUE)), required=False),
    }
)

PARTIALS = Listing(
    Table(
        {
            "series": Member(Name()),
            "iteration": Member(INDEX, describe="the trainer's step"),
            "microbatch": Member(INDEX, describe="index within (rank, iteration)"),
            "count": Member(COUNT, describe="positions where a != b"),
            "valid": Member(COUNT, describe="positions under the mask"),
            "max": Member(Nullable(Size()), describe="largest finite |a - b|, or null"),
            "sum": Member(Size(), describe="sum of the finite |a - b|, in float64"),
            "nonfinite": Member(
                COUNT, required=False, default=0, describe="mismatches whose |a - b| is not finite"
            ),
            "sum_sq": Member(Nullable(Size()), required=False, describe="sum of the squares"),
            "ulp_max": Member(Nullable(COUNT), required=False, describe="largest ulp distance"),
            "total": Member(Nullable(COUNT), required=False, describe="positions before the mask"),
            "worst": Member(Nullable(WORST), required=False, describe="the largest mismatch"),
        }
    )
)

SCALARS = Listing(
    Table(
        {
            "key": Member(Name()),
            "iteration": Member(INDEX),
            "microbatch": Member(INDEX),
            "value": Member(Number()),
            "weight": Member(COUNT, required=False, default=1),
            "rule": Member(
                Nullable(Choice(tuple(sorted(SCALAR_RULES)))),
                required=False,
                describe="may be left out where the rules file has one for the key",
            ),
            "global": Member(
                Boolean(), required=False, default=False, describe="already reduced over ranks"
            ),
        }
    )
)

COMMITS = Listing(Table({"iteration": Member(INDEX), "microbatches": Member(INDEX)}))

LISTS = {"partials": PARTIALS, "scalars": SCALARS, "commits": COMMITS}

HEADER = Table(
    {
        "project": Member(PATH_NAME, required=False, default="default"),
        "run": Member(PATH_NAME),
        "attempt": Member(INDEX, required=False, default=0, describe="launch of the run"),
        "rank": Member(INDEX, describe="index of the data shard that reports"),
        "world_size": Member(Integer(1, MAX_INDEX), required=False, describe="number of shards"),
        "meta": Member(
            Meta(Text(MAX_NAME, least=1), Text(MAX_META_VALUE)),
            required=False,
            describe="short strings by name that describe the attempt",
        ),
        "dropped": Member(
            COUNT, required=False, default=0, describe="partials that this rank had to give up"
        ),
    }
)

REPORT = Table(
    {**HEADER.members, **{name: Member(kind, required=False) for name, kind in LISTS.items()}}
)

FINISH = Table({"attempt": Member(INDEX)})

_HEADER_EXAMPLE = {
    "project": "default",
    "run": "qwen3-8b-zero-diff",
    "attempt": 0,
    "rank": 3,
    "world_size": 8,
}
_PARTIAL_EXAMPLE = {
    "series": "training/rollout_logprobs",
    "iteration": 12,
    "microbatch": 0,
    "count": 1,
    "max": 7.450580596923828e-09,
    "sum": 7.450580596923828e-09,
    "valid": 4096,
}
_SCALAR_EXAMPLE = {
    "key": "actor/pg_loss/mean",
    "iteration": 12,
    "microbatch": 0,
    "value": 0.25,
    "weight": 512,
    "rule": "mean",
}

EXAMPLES = {
    "rows": _HEADER_EXAMPLE
    | {
        "partials": [_PARTIAL_EXAMPLE],
        "scalars": [_SCALAR_EXAMPLE],
        "commits": [{"iteration": 12, "microbatches": 8}],
    },
    "columns": _HEADER_EXAMPLE
    | {
        "partials": {name: [value] for name, value in _PARTIAL_EXAMPLE.items()},
        "scalars": {name: [value] for name, value in _SCALAR_EXAMPLE.items()},
        "commits": {"iteration": [12], "microbatches": [8]},
    },
}
