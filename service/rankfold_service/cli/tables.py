"""Aligned tables, which leave out what a narrow screen has no room for, but never cut a name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rankfold_service.cli.text import Screen, visible, width_of

GAP = "  "
INDENT = "  "


class Column(NamedTuple):
    """A table's column; the last three say how it makes room where the table is too wide.

    Attributes:
        title: stands above it.
        number: its cells stand right.
        gate: its cells are gates and have their colours.
        group: its values become headings over the rows that have them.
        legend: its title becomes a number, which is explained below the table.
        drop: it is left out, the highest first; 0 for never.
    """

    title: str
    number: bool = False
    gate: bool = False
    group: bool = False
    legend: bool = False
    drop: int = 0


@dataclass(frozen=True)
class Grid:
    """What a table shows: columns, and rows of cells that are safe to print."""

    columns: tuple[Column, ...]
    rows: list[list[str]]

    @property
    def widths(self) -> list[int]:
        """How many characters each column takes."""
        return [
            max(width_of(text) for text in (column.title, *(row[index] for row in self.rows)))
            for index, column in enumerate(self.columns)
        ]

    @property
    def width(self) -> int:
        """How many characters a line takes."""
        return sum(self.widths) + len(GAP) * (len(self.columns) - 1)

    def without(self, index: int) -> Grid:
        """Return it without a column."""
        return Grid(
            (*self.columns[:index], *self.columns[index + 1 :]),
            [[*row[:index], *row[index + 1 :]] for row in self.rows],
        )

    def grouped(self) -> tuple[list[str], Grid]:
        """Return the heading of each row, where a column groups them, and the rest."""
        for index, column in enumerate(self.columns):
            if column.group:
                return [row[index] for row in self.rows], self.without(index)
        return [], self

    def numbered(self) -> tuple[list[str], Grid]:
        """Return the legend of the columns that may have one, and the table with their numbers."""
        titles = [column.title for column in self.columns if column.legend]
        marks = {title: f"#{number}" for number, title in enumerate(titles, 1)}
        columns = tuple(
            column._replace(title=marks[column.title]) if column.legend else column
            for column in self.columns
        )
        return [f"{mark}  {title}" for title, mark in marks.items()], replace(self, columns=columns)

    def narrowed(self, width: int) -> tuple[list[str], Grid]:
        """Return the titles that had to be left out for a width, and the rest."""
        grid = self
        while grid.width > width and any(column.drop for column in grid.columns):
            first = max(range(len(grid.columns)), key=lambda index: grid.columns[index].drop)
            grid = grid.without(first)
        kept = {column.title for column in grid.columns}
        return [c.title for c in self.columns if c.title not in kept], grid

    def lines(self, screen: Screen) -> list[str]:
        """Return the line of titles and one per row."""
        widths = self.widths
        titles = [
            _padded(c.title, w, c.number, screen.heading(c.title))
            for c, w in zip(self.columns, widths, strict=True)
        ]
        return [_line(titles), *(self._row(widths, row, screen) for row in self.rows)]

    def _row(self, widths: Sequence[int], row: Sequence[str], screen: Screen) -> str:
        return _line(
            [
                _padded(text, width, column.number, screen.gate(text) if column.gate else text)
                for column, width, text in zip(self.columns, widths, row, strict=True)
            ]
        )


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], screen: Screen) -> str:
    """Return a table with a line per row below its titles.

    Where the screen is too narrow, columns make room as they allow, and a last line names those
    that were left out. Where that is not enough, lines run over the edge: names stay whole.
    """
    shown = tuple(column._replace(title=visible(column.title)) for column in columns)
    grid = Grid(shown, [[visible(cell) for cell in row] for row in rows])
    if screen.width is None or grid.width <= screen.width:
        return "\n".join(grid.lines(screen))
    headings, grid = grid.grouped()
    legend, grid = grid.numbered()
    left_out, grid = grid.narrowed(screen.width - (len(INDENT) if headings else 0))
    lines = grid.lines(screen)
    if headings:
        lines = list(_under(headings, lines, screen))
    if left_out:
        legend.append(f"no room for: {', '.join(left_out)}")
    return "\n".join([*lines, *legend])


def _under(headings: list[str], lines: list[str], screen: Screen) -> Iterator[str]:
    """Yield the titles, then each row below the heading that it shares with its neighbours."""
    yield INDENT + lines[0]
    last = None
    for heading, line in zip(headings, lines[1:], strict=True):
        if heading != last:
            yield screen.heading(heading)
        yield INDENT + line
        last = heading


def _line(cells: Sequence[str]) -> str:
    return GAP.join(cells).rstrip()


def _padded(text: str, width: int, right: bool, painted: str) -> str:
    """Return `painted`, filled up by what `text`, which has no escape sequences, leaves free."""
    fill = " " * (width - width_of(text))
    return fill + painted if right else painted + fill
