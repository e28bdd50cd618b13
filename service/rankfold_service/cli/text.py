"""Text that a person likes to read: short numbers, times, a little colour."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

NONE = "-"
LAST_DATE = 253402300799  # in seconds since the epoch; later times have no date

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


def width_of(text: str) -> int:
    """Return how many columns a text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def visible(text: str) -> str:
    """Return a text whose characters can do nothing to a terminal but appear on it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def tell(command: str | None, what: str) -> None:
    """Say on standard error, in one line of the command, what is not its output."""
    name = " ".join(filter(None, ("rankfold", command)))
    print(f"{name}: {visible(what)}", file=sys.stderr, flush=True)


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
            return visible(value)


def plain(value: int | str | None) -> str:
    """Return an index or a name, which has no separators; null as a dash."""
    return NONE if value is None else str(value)


def counted(count: int, word: str, words: str | None = None) -> str:
    """Return a count with its word; `words` is for a plural that does not end in s."""
    return f"{count:,} {word if count == 1 else words or word + 's'}"


def spans(numbers: Iterable[int]) -> str:
    """Return numbers in short: neighbours as a span, as in `0-3, 7`; none as a dash."""
    found: list[list[int]] = []
    for value in sorted(set(numbers)):
        if found and found[-1][-1] == value - 1:
            found[-1] = [found[-1][0], value]
        else:
            found.append([value])
    return ", ".join("-".join(map(str, span)) for span in found) or NONE


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
    return datetime.fromtimestamp(min(max(then, 0), LAST_DATE), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
