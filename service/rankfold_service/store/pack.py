"""Ledgers and pages as columns of numbers, for the tables that outlive the journal.

What every cell or fold has is a column; what few have, and what has no fixed size, is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from rankfold.attempt import Attempt, Reporter, Shelf
from rankfold.facts import Binding, Facts, Launch
from rankfold.fold import Fold, Table
from rankfold.iterations import Iterations
from rankfold.ledger import ConflictNote, Ledger
from rankfold.microbatches import Microbatches
from rankfold.page import Cell, Conflict, Page
from rankfold.rules import Rule, RuleSet
from rankfold.scope import Scope
from rankfold_service.store.columns import ColumnReader, anything, doubles, encode, integers
from rankfold_service.store.folds import (
    compressed,
    joined,
    pack_folds,
    pack_scalar_folds,
    pack_tokens,
    reader,
    unpack_folds,
    unpack_scalar_folds,
    unpack_tokens,
)

Cells = Sequence[tuple[int, str, Cell[Any]]]


def pack_page(page: Page) -> bytes:
    """Return a page as bytes."""
    cells = (*_all(page.series), *_all(page.scalars))
    # What still has contents is written again soon, and they hardly compress.
    join = joined if any(cell.contents for _, _, cell in cells) else compressed
    return join(*_columns_of_page(page))


def _columns_of_page(page: Page) -> Iterator[bytes]:
    series, scalars = _all(page.series), _all(page.scalars)
    partials, values = _rows(series, 6), _rows(scalars, 4)
    yield from (
        integers([*page.commits]),
        integers([*page.commits.values()]),
        anything([_flat(page.series), _flat(page.scalars), sorted(page.conflicts)]),
        anything([[s, pack_tokens(f.worst)] for s, f in page.table.series.items() if f.worst]),
        _cells(series),
        *pack_folds([cell.fold for _, _, cell in series]),
        *(integers(column) for column in partials[:4]),
        *(doubles(column) for column in partials[4:]),
        _cells(scalars),
        *pack_scalar_folds([cell.fold for _, _, cell in scalars]),
        integers(values[0]),
        doubles(values[1]),
        integers(values[2]),
        anything(values[3]),
    )


def unpack_page(data: bytes) -> Page:
    """Return the page that `pack_page` was given."""
    read = reader(data)
    page = Page()
    page.commits = dict(zip(read.column(), read.column(), strict=True))
    series, scalars, conflicts = read.column()
    page.conflicts = {Conflict(*c) for c in conflicts}
    page.table.series = {s: Fold(worst=unpack_tokens(tokens)) for s, tokens in read.column()}
    known, kept = _unpack_cells(read)
    folds = unpack_folds(read)
    partials = zip(*(read.column() for _ in range(6)), strict=True)
    page.series = _deep(series, known, kept, folds, partials)
    known, kept = _unpack_cells(read)
    scalar_folds = unpack_scalar_folds(read)
    columns = [read.column() for _ in range(4)]
    values = zip(*columns[:3], map(Rule, columns[3]), strict=True)
    page.scalars = _deep(scalars, known, kept, scalar_folds, values)
    page.recount()
    return page


def _all(cells: dict[str, dict[int, Any]]) -> Cells:
    return [(rank, name, cell) for name, ranks in cells.items() for rank, cell in ranks.items()]


def _flat(cells: dict[str, dict[int, Any]]) -> list[Any]:
    return [[name, list(ranks)] for name, ranks in cells.items()]


def _rows(cells: Cells, width: int) -> list[Sequence[Any]]:
    """Return the contents of cells as columns."""
    rows = [*chain.from_iterable(cell.contents for _, _, cell in cells)]
    return [*zip(*rows, strict=True)] if rows else [()] * width


def _cells(cells: Cells) -> bytes:
    """Return what cells have besides their folds and contents."""
    known = [cell.known for _, _, cell in cells]
    odd = [[i, Iterations(k).runs()] for i, k in enumerate(known) if k.highest >= len(k)]
    return b"".join(
        (
            integers([*map(len, known)]),
            integers([len(cell.contents) for _, _, cell in cells]),
            anything(odd),
        )
    )


def _unpack_cells(read: ColumnReader) -> tuple[list[Microbatches], list[int]]:
    counts, kept = read.column(), read.column()
    known = [*map(Microbatches.first, counts)]
    for index, runs in read.column():
        known[index] = Microbatches(Iterations.of_runs(runs))
    return known, kept


def _deep(
    names: list[Any],
    known: Iterable[Microbatches],
    kept: Iterable[int],
    folds: Iterable[Any],
    rows: Iterator[Any],
) -> dict[str, dict[int, Any]]:
    """Return cells by name and rank."""
    parts = zip(known, kept, folds, strict=True)
    return {name: {rank: _cell(*next(parts), rows) for rank in ranks} for name, ranks in names}


def _cell(known: Microbatches, kept: int, fold: Any, rows: Iterator[Any]) -> Cell[Any]:
    cell: Cell[Any] = Cell(fold)
    cell.known = known
    cell.contents = [*islice(rows, kept)]
    return cell


def pack_ledger(ledger: Ledger) -> bytes:
    """Return a ledger without its pages as bytes."""
    attempts = list(ledger.attempts.values())
    heads = [{**_launch(a.number, a.launch), **_attempt(a)} for a in attempts]
    return compressed(anything([ledger.facts.bindings, ledger.notes, heads]), *_columns(attempts))


def unpack_ledger(data: bytes, project: str, run: str, rules: RuleSet, shelf: Shelf) -> Ledger:
    """Return the ledger that `pack_ledger` was given; its pages are on the shelf."""
    read = reader(data)
    bindings, notes, attempts = read.column()
    facts = Facts(rules, bindings=_bindings(bindings))
    facts.launches = {plain["number"]: unpack_launch(plain) for plain in attempts}
    facts.series = {series for plain in attempts for series in plain["seen"]}
    ledger = Ledger(project, run, facts, shelf=shelf)
    _fill(ledger, notes, attempts, read)
    for attempt in ledger.attempts.values():
        if attempt.launch.world_size is None:
            attempt.launch.highest_rank = max(attempt.reporters, default=-1)
    return ledger


def pack_book(ledger: Ledger) -> bytes:
    """Return the books of one rank, without its pages and without the facts, as bytes."""
    attempts = list(ledger.attempts.values())
    head = anything([ledger.notes, [_attempt(a) for a in attempts]])
    return joined(head, *_columns(attempts))


def unpack_book(data: bytes, ledger: Ledger) -> None:
    """Fill empty books of one rank with what `pack_book` was given."""
    read = reader(data)
    notes, attempts = read.column()
    _fill(ledger, notes, attempts, read)


def pack_facts(facts: Facts) -> bytes:
    """Return what is known of a run as a whole as bytes."""
    launches = [
        {**_launch(number, launch), "highest_rank": launch.highest_rank}
        for number, launch in facts.launches.items()
    ]
    return encode([launches, facts.bindings, sorted(facts.series)])


def unpack_facts(data: bytes, rules: RuleSet) -> Facts:
    """Return the facts that `pack_facts` was given."""
    launches, bindings, series = json.loads(data)
    facts = Facts(rules, bindings=_bindings(bindings), series=set(series))
    for plain in launches:
        launch = facts.launches[plain["number"]] = unpack_launch(plain)
        launch.highest_rank = plain["highest_rank"]
    return facts


def _bindings(plain: dict[str, Any]) -> dict[str, Binding]:
    return {key: Binding(Rule(rule), is_global) for key, (rule, is_global) in plain.items()}


_LAUNCH = ("first_report", "world_size", "meta", "finished", "first_iteration")


def _launch(number: int, launch: Launch) -> dict[str, Any]:
    return {"number": number, **{name: getattr(launch, name) for name in _LAUNCH}}


def unpack_launch(plain: dict[str, Any]) -> Launch:
    """Return what is known of an attempt as a whole, from what JSON holds of it."""
    return Launch(*(plain[name] for name in _LAUNCH))


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "conflicts": attempt.conflicts,
        "cut": attempt.cut,
        "remains": attempt.remaining is not None,
        "paged": attempt.paged.runs(),
        "covered": attempt.covered.runs(),
        "worked": attempt.worked.runs(),
        "seen": {series: seen.runs() for series, seen in attempt.seen.items()},
        "incomplete": Iterations(sorted(attempt.incomplete)).runs(),
        "last_commit": attempt.last_commit,
        "horizon": attempt.horizon,
    }


def _columns(attempts: Sequence[Attempt]) -> Iterator[bytes]:
    return (part for attempt in attempts for part in _attempt_columns(attempt))


def _attempt_columns(attempt: Attempt) -> Iterator[bytes]:
    reporters = attempt.reporters.values()
    yield integers([*attempt.reporters])
    yield doubles([r.last_report for r in reporters])
    yield integers([r.last_iteration for r in reporters])
    yield integers([r.dropped for r in reporters])
    yield from _scope(attempt.everything)
    if attempt.remaining is not None:
        yield from _scope(attempt.remaining)


def _fill(ledger: Ledger, notes: list[Any], attempts: list[Any], read: ColumnReader) -> None:
    ledger.notes = [ConflictNote(a, i, Conflict(*c), w) for a, i, c, w in notes]
    for plain in attempts:
        attempt = ledger.attempts[plain["number"]] = ledger.new_attempt(plain["number"])
        _fill_attempt(attempt, plain, read)


def _fill_attempt(attempt: Attempt, plain: dict[str, Any], read: ColumnReader) -> None:
    for name in ("conflicts", "cut", "last_commit", "horizon"):
        setattr(attempt, name, plain[name])
    ranks, *rest = (read.column() for _ in range(4))
    attempt.reporters = dict(zip(ranks, map(Reporter, *rest), strict=True))
    attempt.everything = _unscope(read)
    attempt.remaining = _unscope(read) if plain["remains"] else None
    attempt.paged = Iterations.of_runs(plain["paged"])
    attempt.covered = Iterations.of_runs(plain["covered"])
    attempt.worked = Iterations.of_runs(plain["worked"])
    attempt.seen = {series: Iterations.of_runs(seen) for series, seen in plain["seen"].items()}
    attempt.incomplete = set(Iterations.of_runs(plain["incomplete"]))


def _scope(scope: Scope) -> Iterator[bytes]:
    """Yield the folds over all ranks and of each rank, each kind in one go."""
    tables = [scope.table, *scope.ranks.values()]
    yield integers([*scope.ranks])
    yield anything([*scope.table.series])
    yield anything([*scope.table.scalars])
    yield anything(_places([t.series for t in tables], scope.table.series))
    yield anything(_places([t.scalars for t in tables], scope.table.scalars))
    yield from pack_folds([fold for table in tables for fold in table.series.values()])
    yield from pack_scalar_folds([fold for table in tables for fold in table.scalars.values()])


def _unscope(read: ColumnReader) -> Scope:
    scope = Scope()
    ranks, series, keys, in_series, in_keys = (read.column() for _ in range(5))
    folds, scalars = iter(unpack_folds(read)), iter(unpack_scalar_folds(read))
    tables = [Table() for _ in range(1 + len(ranks))]
    for table, has_series, has_keys in zip(tables, in_series, in_keys, strict=True):
        table.series = {series[i]: next(folds) for i in has_series}
        table.scalars = {keys[i]: next(scalars) for i in has_keys}
    scope.table, *rest = tables
    scope.ranks = dict(zip(ranks, rest, strict=True))
    return scope


def _places(tables: Sequence[dict[str, Any]], names: Iterable[str]) -> list[list[int]]:
    """Return, of each table, where its names stand among all names."""
    index = {name: i for i, name in enumerate(names)}
    return [[index[name] for name in table] for table in tables]
