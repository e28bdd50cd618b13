"""The oracle's coverage and gate: what was expected against what was applied."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from .books import Attempts, Books
from .folds import series_figures, worst

LISTED = 100
SHOWN_WORST = 10


@dataclass(frozen=True)
class Question:
    """What a gate is asked; `series` is empty for all."""

    series: tuple[str, ...] = ()
    first: int | None = None
    last: int | None = None
    attempts: Attempts = "all"
    max_mismatch_count: int = 0
    max_diff_max: float | None = None
    allow_absent: bool = False
    require_finished: bool = False

    @property
    def query(self) -> dict[str, Any]:
        """The query's parameters."""
        given = {**vars(self), "from": self.first, "to": self.last}
        del given["first"], given["last"]
        return {k: str(v).lower() if v is True else v for k, v in given.items() if v or v == 0.0}


def reported_in(books: Books, attempt: int, iteration: int) -> set[str]:
    """Return the series that any rank reported in an iteration."""
    return {
        p.series
        for p in books.partials.values()
        if (p.attempt, p.iteration) == (attempt, iteration)
    }


def covered(books: Books, attempt: int) -> list[int]:
    """Return the iterations that a partial or a commit spoke of, ascending."""
    partials = {p.iteration for p in books.partials.values() if p.attempt == attempt}
    return sorted(partials | {i for a, _, i in books.commits if a == attempt})


def owed(
    books: Books, attempt: int, iteration: int, series: tuple[str, ...] | None = None
) -> list[dict[str, Any]]:
    """Return what the ranks owe of an iteration: commits, and microbatches that they committed."""
    reported = reported_in(books, attempt, iteration)
    names = sorted(reported if series is None else reported & set(series))
    return list(_owed(books, attempt, iteration, names))


def _owed(books: Books, attempt: int, iteration: int, names: list[str]) -> Iterator[dict[str, Any]]:
    for rank in range(books.world_size):
        where = {"iteration": iteration, "attempt": attempt, "rank": rank}
        microbatches = books.commits.get((attempt, rank, iteration))
        if microbatches is None:
            yield {**where, "series": None, "microbatches": []}
            continue
        for name in names:
            missing = [
                m
                for m in range(microbatches)
                if (attempt, rank, iteration, name, m) not in books.partials
            ]
            if missing:
                yield {**where, "series": name, "microbatches": missing[:LISTED]}


def absent(books: Books, attempt: int, iteration: int, series: tuple[str, ...]) -> bool:
    """Whether ranks worked in an iteration but none of them reported one of the series."""
    worked = any(books.commits.get((attempt, r, iteration)) for r in range(books.world_size))
    return worked and not set(series) <= reported_in(books, attempt, iteration)


def judged(
    books: Books, attempts: Attempts, first: int | None, last: int | None
) -> list[tuple[int, int]]:
    """Return the (attempt, iteration) pairs whose coverage counts, ascending."""
    low, high = first or 0, math.inf if last is None else last
    which = attempts if isinstance(attempts, int) else "effective"
    return [
        (attempt, i)
        for attempt in books.chosen(attempts)
        for i in covered(books, attempt)
        if low <= i <= high and books.counts(which, attempt, i)
    ]


def known_series(books: Books, attempts: Attempts) -> tuple[str, ...]:
    """Return the series that count for coverage where none is named."""
    which = attempts if isinstance(attempts, int) else "effective"
    return tuple(sorted({p.series for p in books.selected(which)[0]}))


def gate(books: Books, question: Question, finished: bool) -> dict[str, Any]:
    """Return what `gate` must answer, except for the words."""
    asked = question
    first, last = asked.first or 0, math.inf if asked.last is None else asked.last
    partials, _ = books.selected(asked.attempts, None, first, last)
    names = asked.series or sorted({p.series for p in partials})
    of = {name: [p for p in partials if p.series == name] for name in names}
    pairs = judged(books, asked.attempts, asked.first, asked.last)
    series = asked.series or known_series(books, asked.attempts)
    late = {(a, i): owed(books, a, i, asked.series or None) for a, i in pairs}
    incomplete = [i for (_, i), missing in late.items() if missing]
    lacking = [i for a, i in pairs if absent(books, a, i, series)]
    missing = list(islice((m for pair in pairs for m in late[pair]), LISTED))
    latest = books.chosen(asked.attempts)[-1]
    silent = set(range(books.world_size)) - books.heard[latest]
    conflicts = sum(len(books.conflicts[a]) for a in books.chosen(asked.attempts))
    figures = {name: series_figures(chosen) for name, chosen in of.items()}
    late_or_lacking = bool(incomplete or silent or (lacking and not asked.allow_absent))
    unfinished = asked.require_finished and not finished
    return {
        "gate": _word(asked, figures, conflicts, late_or_lacking or unfinished),
        "series": figures,
        "iterations": {
            "first": min((i for _, i in pairs), default=None),
            "last": max((i for _, i in pairs), default=None),
            "complete": len(pairs) - len({*incomplete, *lacking}),
            "incomplete": incomplete[:LISTED],
            "incomplete_count": len(incomplete),
            "absent": lacking[:LISTED],
            "absent_count": len(lacking),
            "in_progress": [],
        },
        "ranks": {
            "expected": books.world_size,
            "expected_from": "world_size",
            "reporting": len(books.heard[latest]),
            "missing": sorted(silent | {m["rank"] for m in missing}),
        },
        "missing": missing,
        "conflicts": conflicts,
        "dropped": 0,
        "worst": worst(p for chosen in of.values() for p in chosen)[:SHOWN_WORST],
    }


def _word(
    asked: Question, figures: dict[str, dict[str, Any]], conflicts: int, incomplete: bool
) -> str:
    def fails(figure: dict[str, Any]) -> bool:
        if figure["mismatch_count"] > asked.max_mismatch_count:
            return True
        limit, largest = asked.max_diff_max, figure["diff_max"]
        over = largest is not None and limit is not None and largest > limit
        return over or (limit is not None and figure["nonfinite_count"] > 0)

    if any(map(fails, figures.values())):
        return "fail"
    if conflicts:
        return "invalid"
    if incomplete:
        return "incomplete"
    empty = not figures or any(not figure["valid_count"] for figure in figures.values())
    return "no_data" if empty else "pass"
