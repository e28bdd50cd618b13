"""Pages and heads as schema 1 had them, JSON, turned into columns: for migration 2 alone."""

from __future__ import annotations

import json
import zlib
from typing import Any

from rankfold.attempt import Reporter
from rankfold.facts import Binding, Facts
from rankfold.fold import Fold, Moments, Place, ScalarFold, Table, WorstToken
from rankfold.iterations import Iterations
from rankfold.ledger import ConflictNote, Ledger
from rankfold.microbatches import Microbatches
from rankfold.page import Cell, Conflict, Page
from rankfold.rules import Rule, RuleSet
from rankfold.scope import Scope
from rankfold_service.store.pack import pack_ledger, unpack_launch
from rankfold_service.store.pages import pack_page
from rankfold_service.store.record import unpack_worst

# What an attempt had under the same name and in the same form.
_KEPT = ("conflicts", "cut", "last_commit", "horizon")


def page_of_schema_1(body: bytes) -> bytes:
    """Return a page of schema 1 as schema 2 has it."""
    plain = json.loads(zlib.decompress(body))
    page = Page()
    page.commits = dict(plain["commits"])
    page.conflicts = {Conflict(*c) for c in plain["conflicts"]}
    for series, ranks in plain["series"].items():
        folds = [_fold(fold) for _, fold, *_ in ranks]
        page.series[series] = {
            rank: _cell(fold.bare, *rest)
            for (rank, _, *rest), fold in zip(ranks, folds, strict=True)
        }
        for fold in folds:
            page.table.add_series(series, fold)
    for key, ranks in plain["scalars"].items():
        page.scalars[key] = {r: _cell(_scalar(fold), *rest) for r, fold, *rest in ranks}
    return pack_page(page)


def head_of_schema_1(head: bytes) -> bytes:
    """Return a run without its pages of schema 1 as schema 2 has it."""
    plain = json.loads(zlib.decompress(head))
    facts = Facts(RuleSet())
    facts.bindings = {k: Binding(Rule(r), g) for k, (r, g) in plain["bindings"].items()}
    ledger = Ledger("", "", facts)
    ledger.notes = [ConflictNote(a, i, Conflict(*c), w) for a, i, c, w in plain["notes"]]
    for entry in plain["attempts"]:
        facts.launches[entry["number"]] = unpack_launch(entry)
        attempt = ledger.new_attempt(entry["number"])
        ledger.attempts[attempt.number] = attempt
        for name in _KEPT:
            setattr(attempt, name, entry[name])
        attempt.reporters = {rank: Reporter(*rest) for rank, *rest in entry["reporters"]}
        attempt.everything = _scope(entry["everything"])
        attempt.remaining = entry["remaining"] and _scope(entry["remaining"])
        attempt.paged = _numbers(entry["paged"])
        attempt.covered = _numbers(entry["covered"])
        attempt.worked = _numbers(entry["worked"])
        attempt.seen = {series: _numbers(seen) for series, seen in entry["seen"].items()}
        attempt.incomplete = set(entry["incomplete"])
    return pack_ledger(ledger)


def _cell(fold: Any, rows: list[list[Any]], folded: list[list[int]]) -> Cell[Any]:
    cell: Cell[Any] = Cell(fold)
    cell.contents = sorted(map(tuple, rows), key=lambda row: row[0])
    cell.known = Microbatches([*_numbers(folded), *(row[0] for row in rows)])
    return cell


def _scope(plain: list[Any]) -> Scope:
    scope = Scope()
    scope.table = _table(plain[0])
    scope.ranks = {rank: _table(table).bare() for rank, table in plain[1]}
    return scope


def _table(plain: list[Any]) -> Table:
    table = Table()
    table.series = {series: _fold(f) for series, f in plain[0].items()}
    table.scalars = {key: _scalar(f) for key, f in plain[1].items()}
    return table


def _fold(plain: list[Any]) -> Fold:
    moments = plain[7]
    return Fold(*plain)._replace(
        sum=_exact(plain[4]),
        moments=moments and Moments(moments[0], _exact(moments[1]), _exact(moments[2])),
        worst=tuple(WorstToken.of(Place(*place), unpack_worst(w)) for place, w in plain[-1]),
    )


def _scalar(plain: list[Any]) -> ScalarFold:
    values, nonfinite, weight, total, weighted, high, low, last = plain
    place = last and (Place(*last[0]), last[1])
    return ScalarFold(values, nonfinite, weight, _exact(total), _exact(weighted), high, low, place)


def _exact(pair: list[int]) -> int:
    return pair[0] << pair[1]


def _numbers(runs: list[list[int]]) -> Iterations:
    return Iterations.of_runs(runs)
