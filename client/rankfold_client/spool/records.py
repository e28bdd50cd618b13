"""Writes an item as one record of a segment, and reads it back equal."""

from __future__ import annotations

import json
from typing import Any

from rankfold.partial import Partial, Worst
from rankfold.wire import MAX_META_VALUE
from rankfold_client.report import (
    CommitItem,
    FinishItem,
    Item,
    OpenItem,
    PartialItem,
    ScalarItem,
)

# Made once: `json.dumps` with settings of its own makes an encoder for each call.
_write = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def to_record(item: Item) -> bytes:
    """Return an item as ASCII."""
    return _write(_row(item)).encode("ascii")


def from_record(record: bytes) -> Item:
    """Return the item of a record.

    Raises:
        ValueError: it is no record that this version writes.
    """
    try:
        kind, *rest = json.loads(record)
        return _item(kind, rest)
    except (TypeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"not a record: {error}") from error


def _row(item: Item) -> list[Any]:
    match item:
        case PartialItem(series, iteration, microbatch, p):
            statistics = [p.valid, p.count, p.max, p.sum, p.nonfinite, p.sum_sq, p.ulp_max, p.total]
            return ["p", series, iteration, microbatch, *statistics, _worst_row(p.worst)]
        case ScalarItem(key, iteration, microbatch, value, weight, rule, is_global):
            return ["s", key, iteration, microbatch, value, weight, rule, is_global]
        case CommitItem(iteration, microbatches):
            return ["c", iteration, microbatches]
        case OpenItem():
            return ["open"]
        case FinishItem():
            return ["finish"]


def _item(kind: Any, rest: list[Any]) -> Item:
    match kind:
        case "p":
            series, iteration, microbatch, *partial, worst = rest
            return PartialItem(series, iteration, microbatch, Partial(*[*partial, _worst(worst)]))
        case "s":
            key, iteration, microbatch, value, weight, rule, is_global = rest
            return ScalarItem(key, iteration, microbatch, value, weight, rule, is_global)
        case "c":
            iteration, microbatches = rest
            return CommitItem(iteration, microbatches)
        case "open":
            return OpenItem()
        case "finish":
            return FinishItem()
        case _:
            raise ValueError(f"not a kind of item: {kind!r}")


def _worst_row(worst: Worst | None) -> list[Any] | None:
    if worst is None:
        return None
    # No more of a name than would travel: a record stays small whatever a trainer names.
    sample = None if worst.sample is None else worst.sample[:MAX_META_VALUE]
    return [list(worst.position), worst.a, worst.b, worst.ulp, worst.token_id, sample]


def _worst(row: list[Any] | None) -> Worst | None:
    if row is None:
        return None
    (first, second), *rest = row
    return Worst((first, second), *rest)
