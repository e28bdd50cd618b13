"""Pages as columns of numbers, for the tables that outlive the journal.

What every cell has is a column; what few have, and what has no fixed size, is JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from rankfold.fold import Fold
from rankfold.iterations import Iterations
from rankfold.microbatches import Microbatches
from rankfold.page import Cell, Conflict, Page
from rankfold.rules import Rule
from rankfold_service.store.columns import ColumnReader, anything, doubles, integers
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


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells of a page as they were: by name the ranks, then of each cell the same in a row.

    Attributes:
        names: each with its ranks.
        known: how many microbatches were reported.
        odd: of what are not those from 0 on, which, by index.
        kept: how many contents there are.
        folds: of each.
        contents: the lists that begin with those; copies would take long.
    """

    names: list[Any]
    known: list[int]
    odd: list[Any]
    kept: list[int]
    folds: list[Any]
    contents: list[list[Any]]

    @classmethod
    def of(cls, cells: dict[str, dict[int, Cell[Any]]]) -> _Cells:
        """Return what cells have now."""
        row = [cell for ranks in cells.values() for cell in ranks.values()]
        known = [cell.known for cell in row]
        return cls(
            [[name, list(ranks)] for name, ranks in cells.items()],
            [*map(len, known)],
            [[i, Iterations(k).runs()] for i, k in enumerate(known) if k.highest >= len(k)],
            [len(cell.contents) for cell in row],
            [cell.fold for cell in row],
            [cell.contents for cell in row],
        )

    def head(self) -> bytes:
        """Return what is known of microbatches as columns."""
        return integers(self.known) + integers(self.kept) + anything(self.odd)

    def columns(self, width: int) -> list[Sequence[Any]]:
        """Return the contents as columns."""
        if not any(self.kept):
            return [()] * width
        rows = map(islice, self.contents, self.kept)
        return [*zip(*chain.from_iterable(rows), strict=True)]


class PageSnapshot:
    """A page as it is now, which no later report changes; to take one costs far less than to pack.

    Args:
        page: of which it is.
    """

    def __init__(self, page: Page) -> None:
        self._commits = dict(page.commits)
        self._series = _Cells.of(page.series)
        self._scalars = _Cells.of(page.scalars)
        self._conflicts = sorted(page.conflicts)
        self._worst = [(s, fold.worst) for s, fold in page.table.series.items() if fold.worst]

    def pack(self) -> bytes:
        """Return the page as bytes."""
        # What still has contents is written again soon, and they hardly compress.
        join = joined if any(self._series.kept) or any(self._scalars.kept) else compressed
        return join(*self._columns())

    def _columns(self) -> Iterator[bytes]:
        series, scalars = self._series, self._scalars
        partials, values = series.columns(6), scalars.columns(4)
        yield from (
            integers([*self._commits]),
            integers([*self._commits.values()]),
            anything([series.names, scalars.names, self._conflicts]),
            anything([[name, pack_tokens(worst)] for name, worst in self._worst]),
            series.head(),
            *pack_folds(series.folds),
            *(integers(column) for column in partials[:4]),
            *(doubles(column) for column in partials[4:]),
            scalars.head(),
            *pack_scalar_folds(scalars.folds),
            integers(values[0]),
            doubles(values[1]),
            integers(values[2]),
            anything(values[3]),
        )


def pack_page(page: Page) -> bytes:
    """Return a page as bytes."""
    return PageSnapshot(page).pack()


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
