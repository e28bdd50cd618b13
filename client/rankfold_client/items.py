"""What a rank has to say, item by item, as plain tuples of plain values.

A queue may hold a hundred thousand of them. The garbage collector stops looking at a tuple that
holds nothing but numbers and strings, or one tuple of those; of instances it would look at each,
in passes over the whole process that hold training up for as long as the queue is long.
"""

from __future__ import annotations

from typing import Any

from rankfold.partial import Partial, Worst
from rankfold.wire import MAX_META_VALUE

# The first value says what an item is.
Item = tuple[Any, ...]

PARTIAL, SCALAR, COMMIT = "p", "s", "c"
# The first word of a rank: it adds nothing to a report but makes the run known.
OPEN: Item = ("open",)
# The word that the attempt is over; it travels alone.
FINISH: Item = ("finish",)

# What Python holds for an item in a queue beside its names, measured to the nearest fifty bytes.
_BYTES = {PARTIAL: 500, SCALAR: 300}
_OTHER_BYTES, _WORST_BYTES = 200, 300


def partial_item(series: str, iteration: int, microbatch: int, partial: Partial) -> Item:
    """Return one partial with its place."""
    p = partial
    statistics = (p.valid, p.count, p.max, p.sum, p.nonfinite, p.sum_sq, p.ulp_max, p.total)
    return (PARTIAL, series, iteration, microbatch, *statistics, _worst(p.worst))


def scalar_item(
    key: str,
    iteration: int,
    microbatch: int,
    value: float,
    weight: int,
    rule: str | None,
    is_global: bool,
) -> Item:
    """Return one scalar with its place; `rule` is None where the rules file has one for it."""
    return (SCALAR, key, iteration, microbatch, value, weight, rule, is_global)


def commit_item(iteration: int, microbatches: int) -> Item:
    """Return the word that an iteration is over."""
    return (COMMIT, iteration, microbatches)


def size_of(item: Item) -> int:
    """Return roughly the bytes that an item takes in a queue."""
    size = _BYTES.get(item[0], _OTHER_BYTES)
    if item[0] in (PARTIAL, SCALAR):
        size += len(item[1])
    if item[0] == PARTIAL and item[-1] is not None:
        size += _WORST_BYTES + len(item[-1][-1] or "")
    return size


def named(item: Item) -> str:
    """Return what an item is to the trainer that reported it."""
    match item:
        case (kind, str(name), int(iteration), *_):
            return f"{'series' if kind == PARTIAL else 'key'} {name!r} of iteration {iteration}"
        case (_, iteration, _):
            return f"the commit of iteration {iteration}"
        case _:
            return "the finish" if item == FINISH else "the first report"


def _worst(worst: Worst | None) -> tuple[Any, ...] | None:
    if worst is None:
        return None
    # No more of a name than would travel: an item stays small whatever a trainer names.
    sample = None if worst.sample is None else worst.sample[:MAX_META_VALUE]
    return (*worst.position, worst.a, worst.b, worst.ulp, worst.token_id, sample)
