"""Writes an item as one record of a segment, and reads it back equal."""

from __future__ import annotations

import json
from typing import Any

from rankfold_client.items import COMMIT, FINISH, OPEN, PARTIAL, SCALAR, Item

# Made once: `json.dumps` with settings of its own makes an encoder for each call.
_write = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

_LENGTHS = {PARTIAL: 13, SCALAR: 8, COMMIT: 3, OPEN[0]: 1, FINISH[0]: 1}
_WORST_LENGTH = 6


def to_record(item: Item) -> bytes:
    """Return an item as ASCII."""
    if item[0] == PARTIAL and item[-1] is not None:
        *statistics, (row, column, *rest) = item
        item = (*statistics, ((row, column), *rest))
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
        if values[0] == PARTIAL and values[-1] is not None:
            values[-1] = _worst(*values[-1])
        return tuple(values)
    except (TypeError, LookupError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"not a record: {error!r}") from error


def _worst(position: list[int], *rest: Any) -> tuple[Any, ...]:
    row, column = position
    if len(rest) != _WORST_LENGTH - 1:
        raise ValueError(f"not a worst position of this version: {len(rest)} values")
    return (row, column, *rest)
