"""Text that a person likes to read: aligned tables, short numbers, times, a little colour."""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, TextIO

GAP = "  "
ELLIPSIS = "…"
NARROWEST = 12  # a name is not shortened further, even where the terminal is narrower
NONE = "-"

RESET = "\x1b[0m"
BOLD = "\x1b[1m"
GATE_COLOURS = {
    "pass": "\x1b[32m",
    "fail": "\x1b[31m",
    "invalid": "\x1b[35m",
    "incomplete": "\x1b[33m",
    "no_data": "\x1b[36m",
}


@dataclass(frozen=True)
class Screen:
    """Where text goes.

    Attributes:
        width: in columns; None where there is no edge to respect.
        colour: whether escape sequences are understood and wanted.
    """

    width: int | None = None
    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO) -> Screen:
        """Return what a stream can show; COLUMNS and NO_COLOR have their say."""
        terminal = stream.isatty()
        known = terminal or "COLUMNS" in os.environ
        return cls(
            width=shutil.get_terminal_size().columns if known else None,
            colour=terminal and not os.environ.get("NO_COLOR"),
        )

    def gate(self, word: str) -> str:
        """Return a gate in its colour."""
        return self._painted(GATE_COLOURS.get(word, ""), word)

    def heading(self, text: str) -> str:
        """Return a heading that stands out."""
        return self._painted(BOLD, text)

    def _painted(self, code: str, text: str) -> str:
        return f"{code}{text}{RESET}" if self.colour and code else text


class Column(NamedTuple):
    """A table's column: numbers stand right, names may be shortened, gates have a colour."""

    title: str
    number: bool = False
    name: bool = False
    gate: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], screen: Screen) -> str:
    """Return a table with one line per row below its titles, as wide as the screen allows."""
    texts = [[visible(cell) for cell in row] for row in rows]
    widths = [
        max(width_of(cell) for cell in (column.title, *cells))
        for column, cells in zip(columns, _transposed(texts, len(columns)), strict=True)
    ]
    if screen.width is not None:
        widths = _fitted(columns, widths, screen.width)
    titles = [
        _padded(c.title, w, c.number, screen.heading(c.title))
        for c, w in zip(columns, widths, strict=True)
    ]
    return "\n".join([_line(titles), *(_row(columns, widths, row, screen) for row in texts)])


def _transposed(rows: list[list[str]], count: int) -> list[list[str]]:
    return [[row[index] for row in rows] for index in range(count)]


def _row(
    columns: Sequence[Column], widths: Sequence[int], row: Sequence[str], screen: Screen
) -> str:
    cells = []
    for column, width, text in zip(columns, widths, row, strict=True):
        shown = shortened(text, width) if column.name else text
        painted = screen.gate(shown) if column.gate else shown
        cells.append(_padded(shown, width, column.number, painted))
    return _line(cells)


def _line(cells: Sequence[str]) -> str:
    return GAP.join(cells).rstrip()


def _padded(text: str, width: int, right: bool, painted: str) -> str:
    """Return `painted`, filled up by what `text`, which has no escape sequences, leaves free."""
    fill = " " * (width - width_of(text))
    return fill + painted if right else painted + fill


def _fitted(columns: Sequence[Column], widths: list[int], available: int) -> list[int]:
    """Return the widths with the widest names narrowed until the table fits."""
    fitted = list(widths)
    names = [index for index, column in enumerate(columns) if column.name]
    least = {index: max(NARROWEST, width_of(columns[index].title)) for index in names}
    excess = sum(fitted) + len(GAP) * (len(fitted) - 1) - available
    while excess > 0:
        able = [index for index in names if fitted[index] > least[index]]
        if not able:
            break
        fitted[max(able, key=lambda index: fitted[index])] -= 1
        excess -= 1
    return fitted


def width_of(text: str) -> int:
    """Return how many columns a text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def shortened(text: str, width: int) -> str:
    """Return a text with its middle left out where it is too wide: both ends tell names apart."""
    if width_of(text) <= width:
        return text
    tail = _taken(text[::-1], width // 2)[::-1]
    return _taken(text, width - 1 - width_of(tail)) + ELLIPSIS + tail


def _taken(text: str, width: int) -> str:
    taken = 0
    for index, char in enumerate(text):
        taken += _char_width(char)
        if taken > width:
            return text[:index]
    return text


def visible(text: str) -> str:
    """Return a text whose characters can do nothing to a terminal but appear on it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def number(value: float | int | str | None) -> str:
    """Return a value as short as people read it; counts with separators, null as a dash."""
    match value:
        case None:
            return NONE
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.6g}"
        case _:
            return value


def plain(value: int | str | None) -> str:
    """Return an index or a name, which has no separators; null as a dash."""
    return NONE if value is None else str(value)


def ago(then: float | None, now: float) -> str:
    """Return how long ago a time was; beyond a week, or in the future, the time itself."""
    if then is None:
        return NONE
    seconds = int(now - then)
    if -5 <= seconds < 1:  # clocks differ a little between machines
        return "just now"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if 7 * 86400 > seconds >= size:
            return f"{seconds // size} {unit} ago"
    return datetime.fromtimestamp(then, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
