"""Ledgers and pages as compressed JSON, for the tables that outlive the journal."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rankfold.attempt import Attempt, Iterations, Reporter, Scope
from rankfold.fold import Fold, Moments, Place, ScalarFold, Table, WorstToken
from rankfold.ledger import Binding, ConflictNote, Ledger
from rankfold.page import Conflict, Page, ScalarCell, SeriesCell
from rankfold.rules import Rule, RuleSet
from rankfold_service.store.record import pack_worst, unpack_worst

LoadPage = Callable[[int, int], Page]


def pack_page(page: Page) -> bytes:
    """Return a page as bytes."""
    return _compress(
        {
            "commits": list(page.commits.items()),
            "conflicts": sorted(page.conflicts),
            "series": {
                series: [
                    [rank, _fold(cell.fold), *_contents(cell.contents)]
                    for rank, cell in ranks.items()
                ]
                for series, ranks in page.series.items()
            },
            "scalars": {
                key: [
                    [rank, _scalar(cell.fold), *_contents(cell.contents)]
                    for rank, cell in ranks.items()
                ]
                for key, ranks in page.scalars.items()
            },
        }
    )


def unpack_page(data: bytes) -> Page:
    """Return the page that `pack_page` was given."""
    plain = _decompress(data)
    page = Page()
    page.commits = dict(plain["commits"])
    page.conflicts = {Conflict(*c) for c in plain["conflicts"]}
    for series, ranks in plain["series"].items():
        page.series[series] = {rank: _series_cell(*rest) for rank, *rest in ranks}
    for key, ranks in plain["scalars"].items():
        page.scalars[key] = {rank: _scalar_cell(*rest) for rank, *rest in ranks}
    page.recount()
    return page


def pack_ledger(ledger: Ledger) -> bytes:
    """Return a ledger without its pages as bytes."""
    return _compress(
        {
            "bindings": ledger.bindings,
            "notes": ledger.notes,
            "attempts": [_attempt(a) for a in ledger.attempts.values()],
        }
    )


def unpack_ledger(
    data: bytes, project: str, run: str, rules: RuleSet, load_page: LoadPage
) -> Ledger:
    """Return the ledger that `pack_ledger` was given; it finds its pages by `load_page`."""
    plain = _decompress(data)
    ledger = Ledger(project, run, rules, load_page=load_page)
    ledger.bindings = {k: Binding(Rule(r), g) for k, (r, g) in plain["bindings"].items()}
    ledger.notes = [ConflictNote(a, i, Conflict(*c), w) for a, i, c, w in plain["notes"]]
    for entry in plain["attempts"]:
        attempt = ledger.new_attempt(entry["number"], entry["first_report"])
        _fill_attempt(attempt, entry)
        ledger.attempts[attempt.number] = attempt
    return ledger


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "world_size": attempt.world_size,
        "meta": attempt.meta,
        "finished": attempt.finished,
        "first_report": attempt.first_report,
        "reporters": [
            [rank, r.last_report, r.last_iteration, r.dropped]
            for rank, r in attempt.reporters.items()
        ],
        "conflicts": attempt.conflicts,
        "first_iteration": attempt.first_iteration,
        "cut": attempt.cut,
        "everything": _scope(attempt.everything),
        "remaining": None if attempt.remaining is None else _scope(attempt.remaining),
        "paged": _runs(attempt.paged),
        "covered": _runs(attempt.covered),
        "worked": _runs(attempt.worked),
        "seen": {series: _runs(seen) for series, seen in attempt.seen.items()},
        "incomplete": sorted(attempt.incomplete),
        "last_commit": attempt.last_commit,
        "horizon": attempt.horizon,
    }


def _fill_attempt(attempt: Attempt, plain: dict[str, Any]) -> None:
    for name in (
        *("world_size", "meta", "finished", "conflicts"),
        *("first_iteration", "cut", "last_commit", "horizon"),
    ):
        setattr(attempt, name, plain[name])
    attempt.reporters = {rank: Reporter(*rest) for rank, *rest in plain["reporters"]}
    attempt.everything = _unscope(plain["everything"])
    attempt.remaining = None if plain["remaining"] is None else _unscope(plain["remaining"])
    attempt.paged = _unruns(plain["paged"])
    attempt.covered = _unruns(plain["covered"])
    attempt.worked = _unruns(plain["worked"])
    attempt.seen = {series: _unruns(seen) for series, seen in plain["seen"].items()}
    attempt.incomplete = set(plain["incomplete"])


def _scope(scope: Scope) -> list[Any]:
    return [_table(scope.table), [[rank, _table(t)] for rank, t in scope.ranks.items()]]


def _unscope(plain: list[Any]) -> Scope:
    scope = Scope()
    scope.table = _untable(plain[0])
    scope.ranks = {rank: _untable(table) for rank, table in plain[1]}
    return scope


def _table(table: Table) -> list[Any]:
    return [
        {series: _fold(f) for series, f in table.series.items()},
        {key: _scalar(f) for key, f in table.scalars.items()},
    ]


def _untable(plain: list[Any]) -> Table:
    table = Table()
    table.series = {series: _unfold(f) for series, f in plain[0].items()}
    table.scalars = {key: _unscalar(f) for key, f in plain[1].items()}
    return table


def _fold(fold: Fold) -> list[Any]:
    moments = fold.moments
    return list(
        fold._replace(
            sum=_exact(fold.sum),  # type: ignore[arg-type]  # plain lists stand in for values
            moments=moments and [moments.positions, _exact(moments.sum), _exact(moments.sum_sq)],  # type: ignore[arg-type]
            worst=[[t.place, pack_worst(t.worst)] for t in fold.worst],  # type: ignore[arg-type]
        )
    )


def _unfold(plain: list[Any]) -> Fold:
    fold = Fold(*plain)
    moments: Any = fold.moments
    return fold._replace(
        sum=_unexact(plain[4]),
        moments=moments and Moments(moments[0], _unexact(moments[1]), _unexact(moments[2])),
        worst=tuple(WorstToken(Place(*place), unpack_worst(w)) for place, w in plain[-1]),
    )


def _scalar(fold: ScalarFold) -> list[Any]:
    return [*fold[:3], _exact(fold.sum), _exact(fold.weighted), *fold[5:]]


def _unscalar(plain: list[Any]) -> ScalarFold:
    values, nonfinite, weight, total, weighted, high, low, last = plain
    place = last and (Place(*last[0]), last[1])
    return ScalarFold(
        values, nonfinite, weight, _unexact(total), _unexact(weighted), high, low, place
    )


def _exact(units: int) -> list[int]:
    """Return a big integer as (odd part, power of two): doubles have at most 53 odd bits."""
    shift = max((units & -units).bit_length() - 1, 0)
    return [units >> shift, shift]


def _unexact(pair: list[int]) -> int:
    return pair[0] << pair[1]


def _contents(contents: Mapping[int, tuple[Any, ...] | None]) -> tuple[list[Any], list[Any]]:
    """Return the contents that are kept, and the microbatches whose contents were folded away."""
    kept = [[m, *content] for m, content in contents.items() if content is not None]
    return kept, _runs(sorted(m for m, content in contents.items() if content is None))


def _series_cell(fold: list[Any], rows: list[Any], folded: list[list[int]]) -> SeriesCell:
    cell = SeriesCell()
    cell.fold = _unfold(fold)
    cell.contents = dict.fromkeys(_unruns(folded))
    for microbatch, count, valid, nonfinite, max_, sum_ in rows:
        cell.contents[microbatch] = (count, valid, nonfinite, max_, sum_)
    return cell


def _scalar_cell(fold: list[Any], rows: list[Any], folded: list[list[int]]) -> ScalarCell:
    cell = ScalarCell()
    cell.fold = _unscalar(fold)
    cell.contents = dict.fromkeys(_unruns(folded))
    for microbatch, value, weight, rule in rows:
        cell.contents[microbatch] = (value, weight, Rule(rule))
    return cell


def _runs(iterations: Iterable[int]) -> list[list[int]]:
    """Return ascending numbers as [first, last] runs: most iterations follow each other."""
    runs: list[list[int]] = []
    for iteration in iterations:
        if runs and iteration == runs[-1][1] + 1:
            runs[-1][1] = iteration
        else:
            runs.append([iteration, iteration])
    return runs


def _unruns(runs: list[list[int]]) -> Iterations:
    return Iterations(i for first, last in runs for i in range(first, last + 1))


def _compress(plain: dict[str, Any]) -> bytes:
    return zlib.compress(json.dumps(plain, separators=(",", ":")).encode(), 1)


def _decompress(data: bytes) -> Any:
    return json.loads(zlib.decompress(data))
