"""Rows of figures as an aligned table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WIDEST_HEAD = 12


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as text: a column for every name that one of them has, numbers to the right."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [_column(name, [row.get(name) for row in rows]) for name in names]
    depth = max(len(head) for head, _ in columns)
    lines = zip(*(_aligned(head, cells, depth) for head, cells in columns), strict=True)
    return "\n".join("  ".join(line).rstrip() for line in lines)


def _column(name: str, values: list[Any]) -> tuple[list[str], list[str]]:
    """Return a column's head, broken into short lines, and its cells."""
    return _broken(name), [_cell(value) for value in values]


def _broken(name: str) -> list[str]:
    lines = [""]
    for word in name.split():
        joined = f"{lines[-1]} {word}".strip()
        if len(joined) > WIDEST_HEAD and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def _aligned(head: list[str], cells: list[str], depth: int) -> list[str]:
    """Return a column's lines in one width, its head at the bottom of the heads' lines."""
    lines = [""] * (depth - len(head)) + head
    width = max(map(len, [*lines, *cells]))
    numbers = any(cells) and all(not c or c[0] in "-0123456789" for c in cells)
    side = str.rjust if numbers else str.ljust
    return [side(text, width) for text in [*lines, "-" * width, *cells]]
