"""What a rank has to say, item by item, as flat tuples of plain values, and packed to wait.

A queue may hold a hundred thousand of them. The garbage collector runs by how many containers
there are more than before: of tuples that wait it would soon pass over the whole process, which
takes 80 ms where torch is loaded. What is packed is one string of bytes, which it knows nothing of.
"""

from __future__ import annotations

import marshal
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

# How many values at the end of a partial's item are its worst position's, None where it has none.
WORST_VALUES = 7
# What Python holds for a packed item in a queue beside its bytes.
_OVERHEAD = 120
# The last version without references, which cost more than they save in so few values.
_VERSION = 2


def pack(item: Item) -> bytes:
    """Return an item as bytes that only this process reads.

    Raises:
        ValueError: it holds anything but Python's own numbers and strings.
    """
    return marshal.dumps(item, _VERSION)


def unpack(packed: bytes) -> Item:
    """Return the item that was packed."""
    item: Item = marshal.loads(packed)  # noqa: S302 (it was packed by this process)
    return item


def size_of(packed: bytes) -> int:
    """Return roughly the bytes that a packed item takes in a queue."""
    return _OVERHEAD + len(packed)


def partial_item(series: str, iteration: int, microbatch: int, partial: Partial) -> Item:
    """Return one partial with its place."""
    p = partial
    statistics = (p.valid, p.count, p.max, p.sum, p.nonfinite, p.sum_sq, p.ulp_max, p.total)
    return (PARTIAL, str(series), iteration, microbatch, *statistics, *_worst(p.worst))


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
    return (SCALAR, str(key), iteration, microbatch, value, weight, rule, is_global)


def commit_item(iteration: int, microbatches: int) -> Item:
    """Return the word that an iteration is over."""
    return (COMMIT, iteration, microbatches)


def named(item: Item) -> str:
    """Return what an item is to the trainer that reported it."""
    match item:
        case (kind, str(name), int(iteration), *_):
            return f"{'series' if kind == PARTIAL else 'key'} {name!r} of iteration {iteration}"
        case (_, iteration, _):
            return f"the commit of iteration {iteration}"
        case _:
            return "the finish" if item == FINISH else "the first report"


def _worst(worst: Worst | None) -> Item:
    if worst is None:
        return (None,) * WORST_VALUES
    # No more of a name than would travel: an item stays small whatever a trainer names.
    sample = None if worst.sample is None else worst.sample[:MAX_META_VALUE]
    return (*worst.position, worst.a, worst.b, worst.ulp, worst.token_id, sample)
