"""The one JSON body that says a batch of items, made piece by piece."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rankfold.partial import MAX_COUNT, number_to_json
from rankfold_client.items import COMMIT, PARTIAL, SCALAR, Item

Columns = dict[str, Sequence[Any]]

# In the order of an item's values, the worst position after them.
_PARTIAL_COLUMNS = (
    *("series", "iteration", "microbatch", "valid", "count", "max", "sum"),
    *("nonfinite", "sum_sq", "ulp_max", "total"),
)
_OPTIONAL = ("sum_sq", "ulp_max", "total", "worst")
_SCALAR_COLUMNS = ("key", "iteration", "microbatch", "value", "weight", "rule", "global")
_COMMIT_COLUMNS = ("iteration", "microbatches")
# How many values are written in one go, which nothing else in the process can interrupt.
_SLICE = 200

_write = json.JSONEncoder(allow_nan=False, separators=(",", ":"), check_circular=False).encode


def encode(
    header: dict[str, Any], items: Sequence[Item], pause: Callable[[], None] = lambda: None
) -> bytes:
    """Return the body of a report: the header's members and the items as columns.

    A commit may stand in the body of the partials that it counts: a report is applied whole.

    Args:
        header: members that it begins with.
        items: what it says.
        pause: is called between pieces, so that other threads come to their turn.

    Raises:
        TypeError, ValueError: an item holds what JSON cannot.
    """
    pieces: list[str] = []
    for piece in _pieces(header, items):
        pieces.append(piece)
        pause()
    return "".join(pieces).encode()


def _pieces(header: dict[str, Any], items: Sequence[Item]) -> Iterator[str]:
    members = [f"{_write(name)}:{_write(value)}" for name, value in header.items()]
    yield "{" + ",".join(members)
    for name, columns in (
        ("partials", _partial_columns(_of_kind(items, PARTIAL))),
        ("scalars", _scalar_columns(_of_kind(items, SCALAR))),
        ("commits", _columns(_COMMIT_COLUMNS, _of_kind(items, COMMIT))),
    ):
        if columns:
            yield f',"{name}":'
            yield from _object(columns)
    yield "}"


def _of_kind(items: Sequence[Item], kind: str) -> list[tuple[Any, ...]]:
    """Return the values of the items of a kind as columns, without what says the kind."""
    return list(zip(*(item for item in items if item[0] == kind), strict=True))[1:]


def _object(columns: Columns) -> Iterator[str]:
    """Yield a JSON object of lists in pieces that each take a fraction of a millisecond."""
    before = "{"
    for name, column in columns.items():
        yield f'{before}"{name}":['
        for start in range(0, len(column), _SLICE):
            part = column[start : start + _SLICE]
            if name == "worst":
                part = [None if worst is None else _worst(*worst) for worst in part]
            yield ("," if start else "") + _write(part)[1:-1]
        before = "],"
    yield "]}"


def _columns(names: Sequence[str], values: Sequence[tuple[Any, ...]]) -> Columns:
    return dict(zip(names, values, strict=True)) if values else {}


def _partial_columns(values: Sequence[tuple[Any, ...]]) -> Columns:
    columns = _columns((*_PARTIAL_COLUMNS, "worst"), values)
    for name in _OPTIONAL:
        if columns and all(value is None for value in columns[name]):
            del columns[name]
    return columns


def _scalar_columns(values: Sequence[tuple[Any, ...]]) -> Columns:
    columns = _columns(_SCALAR_COLUMNS, values)
    if columns:
        columns["value"] = [number_to_json(value) for value in columns["value"]]
    return columns


def _worst(
    row: int,
    column: int,
    a: float,
    b: float,
    ulp: int,
    token: int | None,
    sample: str | None,
) -> dict[str, Any]:
    """Return a worst position as it travels; an id or a name that cannot travel is left out."""
    told: dict[str, Any] = {
        "position": [row, column],
        "a": number_to_json(a),
        "b": number_to_json(b),
        "ulp": ulp,
    }
    if token is not None and 0 <= token <= MAX_COUNT:
        told["token_id"] = token
    if sample is not None:
        told["sample"] = printable(sample)
    return told


def printable(text: str) -> str:
    """Return a text with what may not travel replaced by U+FFFD."""
    if text.isprintable():
        return text
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)
