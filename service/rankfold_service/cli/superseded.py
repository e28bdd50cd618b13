"""What totals over the effective attempts hide: mismatches of those that a restart superseded."""

from __future__ import annotations

import argparse
import contextlib

from rankfold.answers import RunAnswer, TotalsAnswer
from rankfold.errors import NotFound
from rankfold_service.cli.api import Api, run_path
from rankfold_service.cli.text import counted


def superseded_note(api: Api, args: argparse.Namespace, rank: int | None = None) -> str:
    """Return that `--attempts all` shows more mismatches, where it does.

    Programs get no notes. A run that was never restarted costs one small read; one that has been
    deleted since its answer came has nothing more to show.
    """
    if args.json or args.attempts not in (None, "effective"):
        return ""
    with contextlib.suppress(NotFound):
        attempts = api.get(run_path(args.project, args.run), RunAnswer)["attempts"]
        if any(attempt["superseded_from"] is not None for attempt in attempts):
            return _note(
                _mismatches(api, args, "all", rank) - _mismatches(api, args, "effective", rank)
            )
    return ""


def _mismatches(api: Api, args: argparse.Namespace, attempts: str, rank: int | None) -> int:
    query = {"attempts": attempts, "rank": rank}
    keys = api.get(run_path(args.project, args.run, "totals"), TotalsAnswer, query)["keys"]
    counts = {key["series"]: key["count"] for key in keys.values() if key["series"] is not None}
    return sum(counts.values())


def _note(hidden: int) -> str:
    if hidden <= 0:
        return ""
    more = counted(hidden, "more mismatch", "more mismatches")
    return f"superseded attempts hold {more}: --attempts all shows them"
