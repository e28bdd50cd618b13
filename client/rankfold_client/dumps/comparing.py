"""Compares what was chosen, one pair at a time, and makes of it the report of a trainer's rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankfold.names import MAX_NAME
from rankfold.partial import Partial
from rankfold_client.blocks import blocks
from rankfold_client.checks import check_name
from rankfold_client.compare import compare
from rankfold_client.dumps.choosing import Pair, Plan, Source, where
from rankfold_client.dumps.entries import Dump, DumpError
from rankfold_client.dumps.opening import load
from rankfold_client.items import commit_item, pack, partial_item
from rankfold_client.report import encode, printable

PROJECT = "compare"
_JOINT = " against "
_BLOCK = 1 << 18


def run_name(a: Dump, b: Dump) -> str:
    """Return what the comparison of two files is called, as a run is."""
    most = (MAX_NAME - len(_JOINT)) // 2
    return _JOINT.join(printable(dump.path.name[-most:]) for dump in (a, b))


def report(plan: Plan, run: str, progress: Callable[[int, Pair], None]) -> bytes:
    """Return the report of what was compared, as a trainer sends one.

    Args:
        plan: of which one pair at a time is in memory.
        run: what the run is called.
        progress: is told which pair, by number, comes next.

    Raises:
        DumpError: a tensor cannot be read, or two cannot be compared.
    """
    items = []
    for number, pair in enumerate(plan.pairs):
        progress(number, pair)
        items.append(pack(partial_item(pair.series, *pair.at, _partial(pair))))
    items += [pack(commit_item(*commit)) for commit in sorted(plan.commits.items())]
    return encode({"project": PROJECT, "run": run, "rank": 0, "world_size": 1}, items).raw


def _partial(pair: Pair) -> Partial:
    try:
        check_name("the tensor's name", pair.series)
        with torch.inference_mode():
            mask, ids = _agreed(pair.masks, _MASKS), _agreed(pair.token_ids, _TOKEN_IDS)
            return compare(load(*pair.a), load(*pair.b), mask=mask, token_ids=ids)
    except ValueError as error:
        files = f"a is in {pair.a.dump.path}, b in {pair.b.dump.path}"
        for what, sources in (("mask", pair.masks), ("token ids", pair.token_ids)):
            files += f", {what} in {sources[0].dump.path}" if sources else ""
        raise DumpError(f"{pair.series!r}{where(pair.at)}: {error} ({files})") from error


class _Beside(NamedTuple):
    """What both files may have beside a pair: its name, what counts of it, what to do."""

    what: str
    meaning: Callable[[Tensor], Tensor]
    remedy: str


_MASKS = _Beside("masks", lambda mask: mask != 0, "say with --mask-file which file's counts")
_TOKEN_IDS = _Beside(
    "token ids", Tensor.long, "these are not the same tokens; without --token-ids nobody looks"
)


def _agreed(sources: list[Source], beside: _Beside) -> Tensor | None:
    """Return what stands beside a pair; both files may have it, and must agree."""
    if not sources:
        return None
    first, *others = (load(*source) for source in sources)
    for other in others:
        differing = _differing(first, other, beside.meaning)
        if differing:
            raise ValueError(f"its {beside.what} differ{differing}: {beside.remedy}")
    return first


def _differing(first: Any, second: Any, meaning: Callable[[Tensor], Tensor]) -> str:
    """Say in how far two tensors differ, or "" where they agree."""
    if first.is_nested and second.is_nested:
        if not torch.equal(first.offsets(), second.offsets()):
            return " in the rows' lengths"
        first, second = first.values(), second.values()
    if first.shape != second.shape or first.is_nested or second.is_nested:
        return " in shape"
    pieces = blocks([first, second], _BLOCK)
    count = sum(int(torch.count_nonzero(meaning(x) != meaning(y))) for x, y in pieces)
    return f" at {count} positions" if count else ""
