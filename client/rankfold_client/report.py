"""What a rank has to say, item by item, and the one JSON body that says a batch of it."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rankfold.partial import MAX_COUNT, Partial, Worst, number_to_json
from rankfold.wire import MAX_META_VALUE

Columns = dict[str, list[Any]]

_OPTIONAL = ("sum_sq", "ulp_max", "total", "worst")
# What Python holds for an item beside its names, measured to the nearest hundred bytes.
_ITEM_BYTES = 500


@dataclass(frozen=True, slots=True)
class PartialItem:
    """One partial with its place."""

    series: str
    iteration: int
    microbatch: int
    partial: Partial

    @property
    def size(self) -> int:
        """Roughly the bytes that it takes in memory."""
        worst = self.partial.worst
        sample = worst.sample if worst else None
        return _ITEM_BYTES + len(self.series) + len(sample or "")


@dataclass(frozen=True, slots=True)
class ScalarItem:
    """One scalar with its place; `rule` is None where the rules file has one for the key."""

    key: str
    iteration: int
    microbatch: int
    value: float
    weight: int
    rule: str | None
    is_global: bool

    @property
    def size(self) -> int:
        """Roughly the bytes that it takes in memory."""
        return _ITEM_BYTES + len(self.key)


@dataclass(frozen=True, slots=True)
class CommitItem:
    """The word that an iteration is over."""

    iteration: int
    microbatches: int
    size: int = _ITEM_BYTES


@dataclass(frozen=True, slots=True)
class OpenItem:
    """The first word of a rank: it adds nothing to a report but makes the run known."""

    size: int = _ITEM_BYTES


@dataclass(frozen=True, slots=True)
class FinishItem:
    """The word that the attempt is over; it travels alone."""

    size: int = _ITEM_BYTES


Item = OpenItem | PartialItem | ScalarItem | CommitItem | FinishItem


def encode(header: dict[str, Any], items: Sequence[Item]) -> bytes:
    """Return the body of a report: the header's members and the items as columns.

    A commit may stand in the body of the partials that it counts: a report is applied whole.
    """
    partials = [item for item in items if isinstance(item, PartialItem)]
    scalars = [item for item in items if isinstance(item, ScalarItem)]
    commits = [item for item in items if isinstance(item, CommitItem)]
    body = dict(header)
    if partials:
        body["partials"] = _partial_columns(partials)
    if scalars:
        body["scalars"] = _scalar_columns(scalars)
    if commits:
        body["commits"] = {
            "iteration": [item.iteration for item in commits],
            "microbatches": [item.microbatches for item in commits],
        }
    return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()


def named(item: Item) -> str:
    """Return what an item is to the trainer that reported it."""
    match item:
        case PartialItem(series=series, iteration=iteration):
            return f"series {series!r} of iteration {iteration}"
        case ScalarItem(key=key, iteration=iteration):
            return f"key {key!r} of iteration {iteration}"
        case CommitItem(iteration=iteration):
            return f"the commit of iteration {iteration}"
        case OpenItem():
            return "the first report"
        case FinishItem():
            return "the finish"


def _partial_columns(items: Sequence[PartialItem]) -> Columns:
    columns: Columns = {
        "series": [item.series for item in items],
        "iteration": [item.iteration for item in items],
        "microbatch": [item.microbatch for item in items],
    }
    for name in ("valid", "count", "nonfinite", "max", "sum"):
        columns[name] = [getattr(item.partial, name) for item in items]
    for name in _OPTIONAL:
        column = [getattr(item.partial, name) for item in items]
        if any(value is not None for value in column):
            columns[name] = column
    if "worst" in columns:
        columns["worst"] = [w if w is None else _worst(w) for w in columns["worst"]]
    return columns


def _scalar_columns(items: Sequence[ScalarItem]) -> Columns:
    members: dict[str, Callable[[ScalarItem], Any]] = {
        "key": lambda item: item.key,
        "iteration": lambda item: item.iteration,
        "microbatch": lambda item: item.microbatch,
        "value": lambda item: number_to_json(item.value),
        "weight": lambda item: item.weight,
        "rule": lambda item: item.rule,
        "global": lambda item: item.is_global,
    }
    return {name: [get(item) for item in items] for name, get in members.items()}


def _worst(worst: Worst) -> dict[str, Any]:
    """Return a worst position as it travels; an id or a name that cannot travel is left out."""
    told: dict[str, Any] = {
        "position": list(worst.position),
        "a": number_to_json(worst.a),
        "b": number_to_json(worst.b),
        "ulp": worst.ulp,
    }
    if worst.token_id is not None and 0 <= worst.token_id <= MAX_COUNT:
        told["token_id"] = worst.token_id
    if worst.sample is not None:
        told["sample"] = printable(worst.sample[:MAX_META_VALUE])
    return told


def printable(text: str) -> str:
    """Return a text with what may not travel replaced by U+FFFD."""
    if text.isprintable():
        return text
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)
