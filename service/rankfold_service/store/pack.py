"""Ledgers and pages as columns of numbers, for the tables that outlive the journal.

What every cell or fold has is a column; what few have, and what has no fixed size, is JSON.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from rankfold.attempt import Attempt, Iterations, Reporter, Shelf
from rankfold.fold import Fold, Moments, Place, ScalarFold, Table, WorstToken
from rankfold.ledger import Binding, ConflictNote, Ledger
from rankfold.microbatches import Microbatches
from rankfold.page import Cell, Conflict, Page
from rankfold.rules import Rule, RuleSet
from rankfold.scope import Scope
from rankfold_service.store.columns import ColumnReader, anything, doubles, exact, integers
from rankfold_service.store.record import pack_worst, unpack_worst

_PLAIN = b"\0"  # compressed data begins with an x

Cells = Sequence[tuple[int, str, Cell[Any]]]


def pack_page(page: Page) -> bytes:
    """Return a page as bytes."""
    series = [(r, name, c) for name, ranks in page.series.items() for r, c in ranks.items()]
    scalars = [(r, key, c) for key, ranks in page.scalars.items() for r, c in ranks.items()]
    partials, values = _rows(series, 6), _rows(scalars, 4)
    # What still has contents is written again soon, and they hardly compress.
    pack = _plain if any(partials) or any(values) else _compress
    return pack(
        integers([*page.commits]),
        integers([*page.commits.values()]),
        anything([_flat(page.series), _flat(page.scalars), sorted(page.conflicts)]),
        anything([[s, _tokens(f.worst)] for s, f in page.table.series.items() if f.worst]),
        _cells(series),
        *_folds([cell.fold for _, _, cell in series]),
        *(integers(column) for column in partials[:4]),
        *(doubles(column) for column in partials[4:]),
        _cells(scalars),
        *_scalar_folds([cell.fold for _, _, cell in scalars]),
        integers(values[0]),
        doubles(values[1]),
        integers(values[2]),
        anything(values[3]),
    )


def unpack_page(data: bytes) -> Page:
    """Return the page that `pack_page` was given."""
    read = _reader(data)
    page = Page()
    page.commits = dict(zip(read.column(), read.column(), strict=True))
    series, scalars, conflicts = read.column()
    page.conflicts = {Conflict(*c) for c in conflicts}
    page.table.series = {s: Fold(worst=_untokens(tokens)) for s, tokens in read.column()}
    known, kept = _unpack_cells(read)
    folds = _unfolds(read)
    partials = zip(*(read.column() for _ in range(6)), strict=True)
    page.series = _deep(series, known, kept, folds, partials)
    known, kept = _unpack_cells(read)
    scalar_folds = _unscalar_folds(read)
    columns = [read.column() for _ in range(4)]
    values = zip(*columns[:3], map(Rule, columns[3]), strict=True)
    page.scalars = _deep(scalars, known, kept, scalar_folds, values)
    page.recount()
    return page


def _flat(cells: dict[str, dict[int, Any]]) -> list[Any]:
    return [[name, list(ranks)] for name, ranks in cells.items()]


def _rows(cells: Cells, width: int) -> list[Sequence[Any]]:
    """Return the contents of cells as columns."""
    rows = [*chain.from_iterable(cell.contents for _, _, cell in cells)]
    return [*zip(*rows, strict=True)] if rows else [()] * width


def _cells(cells: Cells) -> bytes:
    """Return what cells have besides their folds and contents."""
    known = [cell.known for _, _, cell in cells]
    odd = [[i, _runs(k)] for i, k in enumerate(known) if k.highest >= len(k)]
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
        known[index] = Microbatches(_unruns(runs))
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
    head = [ledger.bindings, ledger.notes, [_attempt(a) for a in attempts]]
    return _compress(
        anything(head),
        *(part for attempt in attempts for part in _attempt_columns(attempt)),
    )


def unpack_ledger(data: bytes, project: str, run: str, rules: RuleSet, shelf: Shelf) -> Ledger:
    """Return the ledger that `pack_ledger` was given; its pages are on the shelf."""
    read = _reader(data)
    bindings, notes, attempts = read.column()
    ledger = Ledger(project, run, rules, shelf=shelf)
    ledger.bindings = {k: Binding(Rule(r), g) for k, (r, g) in bindings.items()}
    ledger.notes = [ConflictNote(a, i, Conflict(*c), w) for a, i, c, w in notes]
    for entry in attempts:
        attempt = ledger.new_attempt(entry["number"], entry["first_report"])
        _fill_attempt(attempt, entry, read)
        ledger.attempts[attempt.number] = attempt
    return ledger


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "world_size": attempt.world_size,
        "meta": attempt.meta,
        "finished": attempt.finished,
        "first_report": attempt.first_report,
        "conflicts": attempt.conflicts,
        "first_iteration": attempt.first_iteration,
        "cut": attempt.cut,
        "remains": attempt.remaining is not None,
        "paged": _runs(attempt.paged),
        "covered": _runs(attempt.covered),
        "worked": _runs(attempt.worked),
        "seen": {series: _runs(seen) for series, seen in attempt.seen.items()},
        "incomplete": _runs(sorted(attempt.incomplete)),
        "last_commit": attempt.last_commit,
        "horizon": attempt.horizon,
    }


def _attempt_columns(attempt: Attempt) -> Iterator[bytes]:
    reporters = attempt.reporters.values()
    yield integers([*attempt.reporters])
    yield doubles([r.last_report for r in reporters])
    yield integers([r.last_iteration for r in reporters])
    yield integers([r.dropped for r in reporters])
    yield from _scope(attempt.everything)
    if attempt.remaining is not None:
        yield from _scope(attempt.remaining)


def _fill_attempt(attempt: Attempt, plain: dict[str, Any], read: ColumnReader) -> None:
    for name in (
        *("world_size", "meta", "finished", "conflicts"),
        *("first_iteration", "cut", "last_commit", "horizon"),
    ):
        setattr(attempt, name, plain[name])
    ranks, *rest = (read.column() for _ in range(4))
    attempt.reporters = dict(zip(ranks, map(Reporter, *rest), strict=True))
    attempt.everything = _unscope(read)
    attempt.remaining = _unscope(read) if plain["remains"] else None
    attempt.paged = _unruns(plain["paged"])
    attempt.covered = _unruns(plain["covered"])
    attempt.worked = _unruns(plain["worked"])
    attempt.seen = {series: _unruns(seen) for series, seen in plain["seen"].items()}
    attempt.incomplete = set(_unruns(plain["incomplete"]))


def _scope(scope: Scope) -> Iterator[bytes]:
    """Yield the folds over all ranks and of each rank, each kind in one go."""
    tables = [scope.table, *scope.ranks.values()]
    yield integers([*scope.ranks])
    yield anything([*scope.table.series])
    yield anything([*scope.table.scalars])
    yield anything(_places([t.series for t in tables], scope.table.series))
    yield anything(_places([t.scalars for t in tables], scope.table.scalars))
    yield from _folds([fold for table in tables for fold in table.series.values()])
    yield from _scalar_folds([fold for table in tables for fold in table.scalars.values()])


def _unscope(read: ColumnReader) -> Scope:
    scope = Scope()
    ranks, series, keys, in_series, in_keys = (read.column() for _ in range(5))
    folds, scalars = iter(_unfolds(read)), iter(_unscalar_folds(read))
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


def _folds(folds: Sequence[Fold]) -> list[bytes]:
    """Return folds as columns; the optional fields, which few have, by index."""
    columns: list[Sequence[Any]] = [*zip(*folds, strict=True)] if folds else [()] * 11
    sums, maxima, minima, moments, ulp_max, total, worst = columns[4:]
    extra = [[i, m.positions, m.sum, m.sum_sq] for i, m in enumerate(moments) if m]
    found, positions, sum_, sum_sq = zip(*extra, strict=True) if extra else [()] * 4
    tokens = [[i, _tokens(w)] for i, w in enumerate(worst) if w]
    return [
        *map(integers, columns[:4]),
        exact(sums),
        doubles(maxima),
        doubles(minima),
        integers(found),
        integers(positions),
        exact(sum_),
        exact(sum_sq),
        integers(ulp_max),
        integers(total),
        anything(tokens),
    ]


def _unfolds(read: ColumnReader) -> list[Fold]:
    partials, valid, count, nonfinite = (read.column() for _ in range(4))
    sums, maxima, minima = read.exact(), read.column(), read.column()
    moments: list[Moments | None] = [None] * len(partials)
    found, positions = read.column(), read.column()
    for index, *of_it in zip(found, positions, read.exact(), read.exact(), strict=True):
        moments[index] = Moments(*of_it)
    ulp_max, total = read.column(), read.column()
    worst: list[tuple[WorstToken, ...]] = [()] * len(partials)
    for index, tokens in read.column():
        worst[index] = _untokens(tokens)
    columns = (partials, valid, count, nonfinite, sums, maxima, minima, moments)
    return [*map(Fold, *columns, ulp_max, total, worst)]


def _tokens(worst: Iterable[WorstToken]) -> list[Any]:
    return [[token.place, pack_worst(token.worst)] for token in worst]


def _untokens(plain: Iterable[Any]) -> tuple[WorstToken, ...]:
    return tuple(WorstToken.of(Place(*place), unpack_worst(worst)) for place, worst in plain)


def _scalar_folds(folds: Sequence[ScalarFold]) -> list[bytes]:
    columns: list[Sequence[Any]] = [*zip(*folds, strict=True)] if folds else [()] * 8
    values, nonfinite, weight, sums, weighted, maxima, minima, last = columns
    return [
        *map(integers, (values, nonfinite, weight)),
        exact(sums),
        exact(weighted),
        doubles(maxima),
        doubles(minima),
        anything(last),
    ]


def _unscalar_folds(read: ColumnReader) -> list[ScalarFold]:
    values, nonfinite, weight = (read.column() for _ in range(3))
    sums, weighted = read.exact(), read.exact()
    maxima, minima = read.column(), read.column()
    last = [pair and (Place(*pair[0]), pair[1]) for pair in read.column()]
    return [*map(ScalarFold, values, nonfinite, weight, sums, weighted, maxima, minima, last)]


def _runs(ascending: Iterable[int]) -> list[list[int]]:
    """Return ascending numbers as [first, last] runs: most of them follow each other."""
    runs: list[list[int]] = []
    for number in ascending:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def _unruns(runs: list[list[int]]) -> Iterations:
    return Iterations(i for first, last in runs for i in range(first, last + 1))


def _compress(*parts: bytes) -> bytes:
    return zlib.compress(b"".join(parts), 1)


def _plain(*parts: bytes) -> bytes:
    data = b"".join(parts)
    return _PLAIN + zlib.crc32(data).to_bytes(4, "little") + data


def _reader(data: bytes) -> ColumnReader:
    if not data.startswith(_PLAIN):
        return ColumnReader(zlib.decompress(data))
    checksum, columns = data[1:5], data[5:]
    if zlib.crc32(columns).to_bytes(4, "little") != checksum:
        raise ValueError("the checksum does not fit")
    return ColumnReader(columns)
