"""`rankfold runs`, `totals`, `ranks` and `worst`: what an aggregator knows, as tables or JSON."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from rankfold.answers import ProjectsAnswer, RanksAnswer, RunsAnswer, TotalsAnswer, WorstsAnswer
from rankfold_service.cli import options
from rankfold_service.cli.api import Answer, Api, connect, run_path, runs_path
from rankfold_service.cli.superseded import superseded_note
from rankfold_service.cli.text import Screen, spans, tell
from rankfold_service.cli.views import ranks_table, runs_table, totals_table, worst_table

CODES = (
    "exit codes: 0 done, 1 no such project, run, attempt or rank, or output that cannot be\n"
    "written, 2 wrong usage or refused, 4 no aggregator answers, or it cannot answer now"
)
TOTALS = """\
Prints every key of a run, folded over all iterations and ranks, and what its value was folded from:

  key        a series' name with what is counted of it, or a scalar's own name
  rule       how its value is folded: sum, max, min, mean, std or last
  value      the folded value, - where nothing was folded
  count      of a series: positions that differ; of a scalar: finite values that were reported
  valid      of a series: positions under the mask
  nonfinite  of a series: differences that are not finite; of a scalar: values that are not
  sum        of a series: of the finite |a - b|; of a scalar: of its values, times their weights
             where the rule is mean
  max        the largest finite |a - b|, or the largest value of a scalar

Keys of one series differ in rule and value only: what they are folded from is the same.
"""
SHOWN_WORST = 20
SHOWN_PROJECTS = 5


def add_runs(subparsers: options.Subparsers) -> None:
    """Add `runs` to the command line."""
    parser = options.new_parser(
        subparsers,
        "runs",
        list_runs,
        "Lists runs: their live gate, their state (running, finished or stale), the numbers of\n"
        "their attempts, how many ranks of the latest attempt reported, the last iteration that\n"
        "any attempt reported, and when the last report came.",
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
        TOTALS,
        f"example:\n  rankfold totals my-run --attempts all\n\n{CODES}",
    )
    options.add_run(parser)
    options.add_attempts(parser, "effective")
    parser.add_argument(
        "--rank", type=options.index, help="only what this rank reported (default: all)"
    )
    options.add_json(parser)


def add_ranks(subparsers: options.Subparsers) -> None:
    """Add `ranks` to the command line."""
    parser = options.new_parser(
        subparsers,
        "ranks",
        show_ranks,
        "Prints, per rank, its last iteration and report, what it counted, and how much it owes\n"
        "of the first 100 incomplete iterations. Expected ranks that never reported are listed.",
        f"example:\n  rankfold ranks my-run\n\n{CODES}",
    )
    options.add_run(parser)
    options.add_attempts(parser, "effective")
    options.add_json(parser)


def add_worst(subparsers: options.Subparsers) -> None:
    """Add `worst` to the command line."""
    parser = options.new_parser(
        subparsers,
        "worst",
        show_worst,
        "Prints the worst tokens of a run, largest first: where each was, what the trainer (a)\n"
        "and the rollout (b) had there, and their distance in units in the last place (ulp).\n\n"
        "Of each microbatch the worst token is reported, and of a run the largest of these are\n"
        "kept, so this is no list of all mismatches. Attempts that a restart superseded are\n"
        "included, as in the verdict.",
        f"example:\n  rankfold worst my-run --limit 5\n\n{CODES}",
    )
    options.add_run(parser)
    options.add_attempts(parser, "all")
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
        damaged = _damaged_note(answer)
        empty = not (answer["items"] or damaged)
        wrong = _unknown_project(api, args.project) if empty else ""

    def table(screen: Screen) -> str:
        if damaged and not answer["items"]:
            return "no run can be read"
        return runs_table(answer["items"], time.time(), screen)

    return _show(args, answer, table, wrong, damaged)


def show_totals(args: argparse.Namespace) -> int:
    """Print every key of a run."""
    query = {"attempts": args.attempts, "rank": args.rank}
    with connect(args) as api:
        answer = api.get(run_path(args.project, args.run, "totals"), TotalsAnswer, query)
        wrong = silent_rank(api, args) if not answer["keys"] else ""
        note = superseded_note(api, args, args.rank)
    who = "the run" if args.rank is None else f"rank {args.rank}"
    return _show(
        args, answer, lambda screen: totals_table(answer["keys"], who, screen), wrong, note
    )


def show_ranks(args: argparse.Namespace) -> int:
    """Print what each rank of a run reported."""
    with connect(args) as api:
        answer = _ranks(api, args)
        note = superseded_note(api, args)
    return _show(
        args, answer, lambda screen: ranks_table(answer["items"], time.time(), screen), note=note
    )


def show_worst(args: argparse.Namespace) -> int:
    """Print the worst tokens of a run."""
    query = {"attempts": args.attempts or "all"}
    with connect(args) as api:
        path = run_path(args.project, args.run, "worst")
        answer = api.pages(path, WorstsAnswer, query, most=args.limit)
    return _show(args, answer, lambda screen: worst_table(answer["items"], screen))


def _runs(api: Api, project: str | None) -> Answer:
    """Return the runs of one project or all, and which of them the store cannot read, if any."""
    if project is not None:
        projects = [project]
    else:
        projects = [item["project"] for item in api.pages("/projects", ProjectsAnswer)["items"]]
    answer: Answer = {"items": [], "next": None}
    for name in projects:
        for page in api.each_page(runs_path(name), RunsAnswer):
            answer["items"] += page["items"]
            if damaged := page.get("damaged"):
                answer.setdefault("damaged", []).extend(damaged)
    return answer


def _damaged_note(answer: Answer) -> str:
    damaged = [f"{at['project']}/{at['run']}" for at in answer.get("damaged", [])]
    if not damaged:
        return ""
    return f"what the store has of these is damaged, see the aggregator's log: {', '.join(damaged)}"


def _ranks(api: Api, args: argparse.Namespace) -> Answer:
    path = run_path(args.project, args.run, "ranks")
    return api.pages(path, RanksAnswer, {"attempts": args.attempts})


def _unknown_project(api: Api, project: str | None) -> str:
    """Return that a project without runs is not known, and which are, where there are any."""
    if project is None:
        return ""
    projects = api.pages("/projects", ProjectsAnswer, most=SHOWN_PROJECTS)
    if not projects["items"]:
        return ""
    more = " and more" if projects["next"] is not None else ""
    known = ", ".join(item["project"] for item in projects["items"])
    return f"no project {project!r} is known; known are: {known}{more}"


def silent_rank(api: Api, args: argparse.Namespace) -> str:
    """Return that the rank has reported nothing, and which have, where that is so."""
    if args.rank is None:
        return ""
    ranks = _ranks(api, args)["items"]
    reported = [rank["rank"] for rank in ranks if rank["last_report"] is not None]
    if args.rank in reported:
        return ""
    return f"rank {args.rank} has reported nothing; ranks that have: {spans(reported)}"


def _show(
    args: argparse.Namespace,
    answer: Answer,
    draw: Callable[[Screen], str],
    wrong: str = "",
    note: str = "",
) -> int:
    """Print an answer; of one that is empty by mistake, for people, only what is wrong."""
    if args.json:
        options.print_json(answer)
    elif not wrong:
        print(draw(Screen.of(sys.stdout)))
    sys.stdout.flush()  # what is said of the table comes after it
    for line in filter(None, (wrong, note)):
        tell(args.command, line)
    return 1 if wrong else 0
