"""Writes an item as one record of a segment, and reads it back equal."""

from __future__ import annotations

import json
from typing import Any

from rankfold_client.items import COMMIT, FINISH, OPEN, PARTIAL, SCALAR, WORST_VALUES, Item

# Made once: `json.dumps` with settings of its own makes an encoder for each call.
_write = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

_LENGTHS = {PARTIAL: 13, SCALAR: 8, COMMIT: 3, OPEN[0]: 1, FINISH[0]: 1}
_NO_WORST = (None,) * WORST_VALUES


def to_record(item: Item) -> bytes:
    """Return an item as ASCII; the values of a worst position are a list of their own."""
    if item[0] == PARTIAL:
        row, column, *rest = item[-WORST_VALUES:]
        worst = None if row is None else ((row, column), *rest)
        item = (*item[:-WORST_VALUES], worst)
    return _write(item).encode("ascii")


def from_record(record: bytes) -> Item:
    """Return the item of a record.

    Raises:
        ValueError: it is no record that this version writes.
    """
    try:
        values = json.loads(record)
        if _LENGTHS[values[0]] != len(values):
            raise ValueError(f"not a {values[0]} of this version: {len(values)} values")
        if values[0] == PARTIAL:
            worst = values.pop()
            values += _NO_WORST if worst is None else _worst(*worst)
        return tuple(values)
    except (TypeError, LookupError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"not a record: {error!r}") from error


def _worst(position: list[int], *rest: Any) -> Item:
    row, column = position
    if len(rest) != WORST_VALUES - 2:
        raise ValueError(f"not a worst position of this version: {len(rest)} values")
    return (row, column, *rest)
