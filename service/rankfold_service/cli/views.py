"""What `rankfold runs`, `totals`, `ranks` and `worst` print: an answer's items as a table."""

from __future__ import annotations

from typing import Any

from rankfold_service.cli.tables import Column, table
from rankfold_service.cli.text import NONE, Screen, ago, number, plain, spans

MISMATCHES = "_mismatch_count"

Item = dict[str, Any]

RUN_COLUMNS = (
    Column("project", group=True),
    Column("run"),
    Column("gate", gate=True),
    Column("state", drop=1),
    Column("attempts", number=True, drop=3),
    Column("ranks", number=True, drop=5),
    Column("last iteration", number=True, drop=4),
    Column("last report", number=True, drop=2),
)
KEY_COLUMNS = (
    Column("key"),
    Column("rule", drop=1),
    Column("value", number=True),
    Column("count", number=True, drop=2),
    Column("valid", number=True, drop=4),
    Column("nonfinite", number=True, drop=3),
    Column("sum", number=True, drop=6),
    Column("max", number=True, drop=5),
)
RANK_COLUMNS = (
    Column("rank", number=True),
    Column("attempt", number=True, drop=4),
    Column("last iteration", number=True, drop=2),
    Column("last report", number=True, drop=1),
    Column("missing", number=True),
    Column("dropped", number=True, drop=3),
)
TOKEN_COLUMNS = (
    Column("series", group=True),
    Column("attempt", number=True, drop=2),
    Column("rank", number=True),
    Column("iteration", number=True),
    Column("microbatch", number=True, drop=3),
    Column("position", number=True),
    Column("a", number=True),
    Column("b", number=True),
    Column("ulp", number=True, drop=1),
)
OPTIONAL_TOKEN_COLUMNS = (Column("token_id", number=True, drop=4), Column("sample", drop=5))


def runs_table(runs: list[Item], now: float, screen: Screen) -> str:
    """Return a line per run."""
    if not runs:
        return "no run has reported yet"
    return table(RUN_COLUMNS, [_run_row(run, now) for run in runs], screen)


def _run_row(run: Item, now: float) -> list[str]:
    attempts = run["attempts"]
    reporting = attempts[-1]["reporting"] if attempts else 0
    return [
        run["project"],
        run["run"],
        run["gate"],
        run["state"],
        spans(attempt["attempt"] for attempt in attempts),
        f"{reporting} of {plain(run['world_size'] or '?')}",
        plain(run["last_iteration"]),
        ago(run["last_report"], now),
    ]


def totals_table(keys: dict[str, Item], who: str, screen: Screen) -> str:
    """Return a line per key of a run or a rank, which `who` names."""
    if not keys:
        return f"{who} has reported neither partials nor scalars"
    fields = ["value", "count", "valid", "nonfinite", "sum", "max"]
    rows = [
        [name, key["rule"], *(number(key[field]) for field in fields)] for name, key in keys.items()
    ]
    return table(KEY_COLUMNS, rows, screen)


def ranks_table(ranks: list[Item], now: float, screen: Screen) -> str:
    """Return a line per rank, with the mismatches of each series."""
    if not ranks:
        return "no rank has reported yet"
    counts = [
        key
        for key in dict.fromkeys(key for rank in ranks for key in rank["keys"])
        if key.endswith(MISMATCHES)
    ]
    columns = [*RANK_COLUMNS, *(Column(key, number=True, legend=True) for key in counts)]
    return table(columns, [_rank_row(rank, counts, now) for rank in ranks], screen)


def _rank_row(rank: Item, counts: list[str], now: float) -> list[str]:
    return [
        plain(rank["rank"]),
        plain(rank["attempt"]),
        plain(rank["last_iteration"]),
        ago(rank["last_report"], now) if rank["last_report"] is not None else "never",
        number(len(rank["missing"])),
        number(rank["dropped"]),
        *(number(rank["keys"].get(key)) for key in counts),
    ]


def worst_table(worst: list[Item], screen: Screen) -> str:
    """Return a line per token."""
    if not worst:
        return "no mismatch was reported with its position"
    optional = [c for c in OPTIONAL_TOKEN_COLUMNS if any(c.title in token for token in worst)]
    rows = [
        [*_token_row(token), *(plain(token.get(column.title)) for column in optional)]
        for token in worst
    ]
    return table([*TOKEN_COLUMNS, *optional], rows, screen)


def _token_row(token: Item) -> list[str]:
    # Words stand for what is not finite, and no number of steps leads there.
    finite = not any(isinstance(token[side], str) for side in ("a", "b"))
    return [
        token["series"],
        *(plain(token[place]) for place in ("attempt", "rank", "iteration", "microbatch")),
        ", ".join(map(str, token["position"])),
        exact(token["a"]),
        exact(token["b"]),
        number(token["ulp"]) if finite else NONE,
    ]


def exact(value: float | str) -> str:
    """Return a log-prob with the digits that tell neighbours in float32 apart."""
    return value if isinstance(value, str) else f"{value:.9g}"
