"""Asks the aggregator everything that it answers about a run, and holds it against the oracle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .aggregator import Aggregator
from .books import Attempts, Books
from .folds import keys, worst
from .plan import RUN, SERIES
from .verdict import LISTED, Question, gate, judged, known_series, owed

PATH = f"/api/v1/projects/default/runs/{RUN}"
QUESTIONS = (
    Question(),
    Question(require_finished=True),
    Question(attempts="effective"),
    Question(series=SERIES[1:]),
    Question(series=SERIES[:1], allow_absent=True, attempts="effective"),
    Question(first=3, last=11, allow_absent=True),
    Question(max_mismatch_count=2**40, allow_absent=True),
    Question(max_mismatch_count=2**40, max_diff_max=1e200),
)


def differences(books: Books, server: Aggregator, finished: bool) -> list[str]:
    """Return where an answer is not the oracle's, to the bit."""
    found: list[str] = []
    for what, query, wanted in answers(books, finished):
        answer = server.ask("GET", f"{PATH}/{what}" if what else PATH, **query)
        assert answer.status == 200, f"{what} {query}: {answer.text}"
        found += (f"{what} {query} {line}" for line in unlike(wanted, answer.json))
    found += unlike(gauges(books, finished), _read_gauges(server.ask("GET", "/metrics").text))
    return found


def unlike(wanted: Any, got: Any, path: str = "") -> Iterator[str]:
    """Yield where two JSON values differ; what is not wanted of an object is not looked at."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        if path.endswith("/keys") or path.endswith("/series"):
            yield from unlike(sorted(wanted), sorted(got), f"{path}/names")
        for name, value in wanted.items():
            yield from unlike(value, got.get(name, "nothing"), f"{path}/{name}")
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for index, value in enumerate(wanted):
            yield from unlike(value, got[index], f"{path}/{index}")
    elif repr(wanted) != repr(got):
        yield f"{path}: wanted {wanted!r}, got {got!r}"


def answers(books: Books, finished: bool) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield each question with its query and what must be answered."""
    ranks = range(books.world_size)
    every: list[Attempts] = ["effective", "all", *books.attempts]
    yield "", {}, _run(books, finished)
    for attempts in every:
        for rank in (None, *ranks):
            query = {"attempts": attempts} | ({} if rank is None else {"rank": rank})
            yield "totals", query, {"keys": keys(*books.selected(attempts, rank))}
            items = [_iteration(books, attempts, rank, i) for i in _shown(books, attempts)]
            yield "iterations", {**query, "limit": 1000}, {"items": items, "next": None}
        shown = [_rank(books, attempts, rank) for rank in ranks]
        yield "ranks", {"attempts": attempts}, {"items": shown, "next": None}
        tokens = worst(books.selected(attempts)[0])
        yield "worst", {"attempts": attempts}, {"items": tokens, "next": None}
    for question in (*QUESTIONS, *(Question(attempts=a) for a in books.attempts)):
        yield "gate", question.query, gate(books, question, finished)


def _run(books: Books, finished: bool) -> dict[str, Any]:
    last = [i for a in books.attempts for i in books.iterations(a)]
    return {
        "state": "finished" if finished else "running",
        "world_size": books.world_size,
        "last_iteration": max(last, default=None),
        "attempts": [_attempt(books, a, finished) for a in books.attempts],
    }


def _attempt(books: Books, attempt: int, finished: bool) -> dict[str, Any]:
    seen, cut = books.iterations(attempt), books.cut(attempt)
    return {
        "attempt": attempt,
        "world_size": books.world_size,
        "finished": finished and attempt == books.attempts[-1],
        "first_iteration": min(seen, default=None),
        "last_iteration": max(seen, default=None),
        "superseded_from": int(cut) if cut < float("inf") else None,
        "reporting": len(books.heard[attempt]),
        "dropped": 0,
        "conflicts": len(books.conflicts[attempt]),
    }


def _shown(books: Books, attempts: Attempts) -> list[int]:
    pairs = ((a, i) for a in books.chosen(attempts) for i in books.iterations(a))
    return sorted({i for a, i in pairs if books.counts(attempts, a, i)})


def _iteration(
    books: Books, attempts: Attempts, rank: int | None, iteration: int
) -> dict[str, Any]:
    counting = (a for a in books.chosen(attempts) if books.counts(attempts, a, iteration))
    newest = max(a for a in counting if iteration in books.iterations(a))
    folded = keys(*books.selected(attempts, rank, iteration, iteration))
    return {
        "iteration": iteration,
        "complete": not owed(books, newest, iteration),
        "keys": {name: key["value"] for name, key in folded.items()},
    }


def _rank(books: Books, attempts: Attempts, rank: int) -> dict[str, Any]:
    chosen = books.chosen(attempts)
    attempt = max((a for a in chosen if rank in books.heard[a]), default=chosen[-1])
    missing = [
        debt
        for a, i in judged(books, attempts, None, None)
        for debt in owed(books, a, i, known_series(books, attempts))
        if debt["rank"] == rank
    ]
    folded = keys(*books.selected(attempts, rank))
    return {
        "rank": rank,
        "attempt": attempt,
        "last_iteration": max(books.touched.get((attempt, rank), ()), default=None),
        "dropped": 0,
        "missing": missing[:LISTED],
        "keys": {name: key["value"] for name, key in folded.items()},
    }


def gauges(books: Books, finished: bool) -> dict[str, float]:
    """Return what must be scraped, by gauge."""
    partials, _ = books.selected("all")
    pairs = judged(books, "all", None, None)
    complete = [i for a, i in pairs if not owed(books, a, i)]
    found = {
        "conflicts": sum(map(len, books.conflicts.values())),
        "run_iteration": max(i for a in books.attempts for i in books.iterations(a)),
        "run_complete_iteration": max(complete),
        "run_incomplete_iterations": len(pairs) - len(complete),
        "run_finished": int(finished),
        f"gate {gate(books, Question(), finished)['gate']}": 1,
    }
    for series in sorted({p.series for p in partials}):
        of = [p for p in partials if p.series == series]
        found[f"mismatch_positions {series}"] = sum(p.count for p in of)
        found[f"nonfinite_positions {series}"] = sum(p.nonfinite for p in of)
        found[f"valid_positions {series}"] = sum(p.valid for p in of)
    return {name: float(value) for name, value in found.items()}


def _read_gauges(text: str) -> dict[str, float]:
    line = re.compile(
        rf'^rankfold_(\w+)\{{.*?run="{RUN}"[^"]*(?:(?:series|status)="([^"]*)")?\}} (\S+)$',
        re.MULTILINE,
    )
    return {f"{name} {label}".strip(): float(value) for name, label, value in line.findall(text)}
