"""`rankfold runs`, `totals`, `ranks` and `worst`: what an aggregator knows, as tables or JSON."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from rankfold_service.cli import options
from rankfold_service.cli.api import Answer, Api, connect, run_path, runs_path
from rankfold_service.cli.tables import Column, Screen, ago, number, plain, table

CODES = "exit codes: 0 done, 1 no such run, 2 wrong usage or refused, 4 no aggregator answers"
SHOWN_WORST = 20

Item = dict[str, Any]


def add_runs(subparsers: options.Subparsers) -> None:
    """Add `runs` to the command line."""
    parser = options.new_parser(
        subparsers,
        "runs",
        list_runs,
        "Lists runs with their state (running, finished or stale), attempts, ranks, last\n"
        "iteration, last report and live gate.",
        f"example:\n  rankfold runs --project zero-diff\n\n{CODES}",
    )
    options.add_project(parser, None, "only this project's runs")
    options.add_aggregator(parser)
    options.add_json(parser)


def add_totals(subparsers: options.Subparsers) -> None:
    """Add `totals` to the command line."""
    parser = options.new_parser(
        subparsers,
        "totals",
        show_totals,
        "Prints every key of a run, folded over all iterations and ranks, and what its value\n"
        "was folded from.",
        f"example:\n  rankfold totals my-run --attempts all\n\n{CODES}",
    )
    options.add_run(parser)
    options.add_attempts(parser, "effective")
    parser.add_argument("--rank", type=options.index, help="only what this rank reported")
    options.add_json(parser)


def add_ranks(subparsers: options.Subparsers) -> None:
    """Add `ranks` to the command line."""
    parser = options.new_parser(
        subparsers,
        "ranks",
        show_ranks,
        "Prints, per rank, its last iteration and report, what is missing and what it counted.\n"
        "Expected ranks that never reported are listed too.",
        f"example:\n  rankfold ranks my-run\n\n{CODES}",
    )
    options.add_run(parser)
    options.add_json(parser)


def add_worst(subparsers: options.Subparsers) -> None:
    """Add `worst` to the command line."""
    parser = options.new_parser(
        subparsers,
        "worst",
        show_worst,
        "Prints the worst tokens of a run, largest first: where each was, what the trainer (a)\n"
        "and the rollout (b) had there, and their distance in units in the last place (ulp).",
        f"example:\n  rankfold worst my-run --limit 5\n\n{CODES}",
    )
    options.add_run(parser)
    parser.add_argument(
        "--limit",
        type=options.how_many,
        default=SHOWN_WORST,
        help="print at most so many (default: %(default)s)",
    )
    options.add_json(parser)


def list_runs(args: argparse.Namespace) -> int:
    """Print the runs of one project, or of all."""
    with connect(args) as api:
        answer = _runs(api, args.project)
    return _show(args, answer, lambda screen: runs_table(answer["items"], time.time(), screen))


def show_totals(args: argparse.Namespace) -> int:
    """Print every key of a run."""
    query = {"attempts": args.attempts, "rank": args.rank}
    with connect(args) as api:
        answer = api.get(run_path(args.project, args.run, "totals"), query)
    return _show(args, answer, lambda screen: totals_table(answer["keys"], screen))


def show_ranks(args: argparse.Namespace) -> int:
    """Print what each rank of a run reported."""
    with connect(args) as api:
        answer = api.pages(run_path(args.project, args.run, "ranks"))
    return _show(args, answer, lambda screen: ranks_table(answer["items"], time.time(), screen))


def show_worst(args: argparse.Namespace) -> int:
    """Print the worst tokens of a run."""
    with connect(args) as api:
        answer = api.pages(run_path(args.project, args.run, "worst"), most=args.limit)
    return _show(args, answer, lambda screen: worst_table(answer["items"], screen))


def _runs(api: Api, project: str | None) -> Answer:
    if project is not None:
        return api.pages(runs_path(project))
    projects = [item["project"] for item in api.pages("/projects")["items"]]
    items = [item for name in projects for item in api.pages(runs_path(name))["items"]]
    return {"items": items, "next": None}


def _show(args: argparse.Namespace, answer: Answer, draw: Callable[[Screen], str]) -> int:
    if args.json:
        options.print_json(answer)
    else:
        print(draw(Screen.of(sys.stdout)))
    return 0


def runs_table(runs: list[Item], now: float, screen: Screen) -> str:
    """Return a line per run."""
    if not runs:
        return "no run has reported yet"
    columns = [
        Column("project", name=True),
        Column("run", name=True),
        Column("gate", gate=True),
        Column("state"),
        Column("attempts", number=True),
        Column("ranks", number=True),
        Column("last iteration", number=True),
        Column("last report", number=True),
    ]
    return table(columns, [_run_row(run, now) for run in runs], screen)


def _run_row(run: Item, now: float) -> list[str]:
    attempts = run["attempts"]
    reporting = attempts[-1]["reporting"] if attempts else 0
    return [
        run["project"],
        run["run"],
        run["gate"],
        run["state"],
        number(len(attempts)),
        f"{reporting} of {plain(run['world_size'] or '?')}",
        plain(run["last_iteration"]),
        ago(run["last_report"], now),
    ]


def totals_table(keys: dict[str, Item], screen: Screen) -> str:
    """Return a line per key."""
    if not keys:
        return "the run has reported neither partials nor scalars"
    fields = ["value", "count", "valid", "nonfinite", "sum", "max"]
    columns = [Column("key", name=True), Column("rule"), *(Column(f, number=True) for f in fields)]
    rows = [
        [name, key["rule"], *(number(key[field]) for field in fields)] for name, key in keys.items()
    ]
    return table(columns, rows, screen)


def ranks_table(ranks: list[Item], now: float, screen: Screen) -> str:
    """Return a line per rank, with the mismatches of each series."""
    if not ranks:
        return "no rank has reported yet"
    counts = [
        key
        for key in dict.fromkeys(key for rank in ranks for key in rank["keys"])
        if key.endswith("_mismatch_count")
    ]
    columns = [
        Column("rank", number=True),
        Column("attempt", number=True),
        Column("last iteration", number=True),
        Column("last report", number=True),
        Column("missing", number=True),
        Column("dropped", number=True),
        *(Column(key, number=True, name=True) for key in counts),
    ]
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
    places = ["attempt", "rank", "iteration", "microbatch"]
    columns = [
        Column("series", name=True),
        *(Column(place, number=True) for place in places),
        *(Column(field, number=True) for field in ("position", "a", "b", "ulp")),
    ]
    optional = [field for field in ("token_id", "sample") if any(field in w for w in worst)]
    columns += [Column(field, number=field == "token_id", name=True) for field in optional]
    rows = [
        [
            token["series"],
            *(plain(token[place]) for place in places),
            ", ".join(map(str, token["position"])),
            exact(token["a"]),
            exact(token["b"]),
            number(token["ulp"]),
            *(plain(token.get(field)) for field in optional),
        ]
        for token in worst
    ]
    return table(columns, rows, screen)


def exact(value: float | str) -> str:
    """Return a log-prob with the digits that tell neighbours in float32 apart."""
    return value if isinstance(value, str) else f"{value:.9g}"
