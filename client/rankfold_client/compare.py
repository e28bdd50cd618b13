"""Two tensors and a mask become a partial: exactly, block by block, never as large as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from rankfold.partial import MAX_COUNT, Partial, Worst
from rankfold_client import bits, kernels
from rankfold_client.kernels import BLOCK, LAYOUTS, NO_DISTANCE, Scratch, Stats
from rankfold_client.operands import check_operands, plain

P = ParamSpec("P")
R = TypeVar("R")

_ACCELERATOR_BLOCK = 1 << 24
_PATTERNS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}


def _outside_graphs(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function as one that torch.compile breaks its graph for and leaves alone."""
    disable = cast("Callable[[Callable[P, R]], Callable[P, R]]", torch.compiler.disable)
    return disable(function)


@_outside_graphs
def compare(
    a: Tensor,
    b: Tensor,
    mask: Tensor | None = None,
    *,
    token_ids: Tensor | None = None,
    sample_ids: Sequence[Any] | None = None,
) -> Partial:
    """Return the partial of a comparison: how far `a` is from `b`, to the last bit.

    Both are cast to float32, or to float64 where either is float64, and compared as IEEE values
    by their bit patterns: 0.0 equals -0.0, equal infinities are equal, NaN differs from
    everything, and subnormals count under flush-to-zero too. Autograd sees nothing of it. On a
    CPU the inputs are read once in blocks that fit into the cache; on an accelerator the result
    is waited for.

    Args:
        a: the trainer's values: float64, float32, bfloat16 or float16, of any shape.
        b: the rollout's values: of the same shape and on the same device.
        mask: bool, or integers or floats that are all 0 or 1, of the same shape and on the same
            device; positions where it is 0 are left out. None counts every position.
        token_ids: integers of the same shape, from which the worst position's is taken.
        sample_ids: a sequence of one name for each row, from which the worst position's is taken.

    Returns:
        The partial with every optional field. A position is (row, column) with the leading
        dimensions flattened to rows; a flat tensor has the one row 0. What a report cannot hold
        is cut: `ulp_max` and `worst.ulp` at 2**53 - 1 and `sum` at the largest double, which only
        float64 can pass; a `sum_sq` beyond the doubles is None.

    Raises:
        ValueError: what was given is no dense torch tensor with values, shapes, devices or dtypes
            do not fit, or the mask holds another value.
    """
    check_operands(a, b, mask, token_ids, sample_ids)
    with torch.inference_mode():
        task = _Task(plain(a), plain(b), None if mask is None else plain(mask))
        return _partial(task, token_ids, sample_ids)


@dataclass(frozen=True, slots=True)
class _Task:
    """What is compared, and how it is cut into blocks."""

    a: Tensor
    b: Tensor
    mask: Tensor | None

    @property
    def dtype(self) -> torch.dtype:
        """The compared dtype."""
        wide = torch.float64 in (self.a.dtype, self.b.dtype)
        return torch.float64 if wide else torch.float32

    @property
    def on_cpu(self) -> bool:
        return self.a.device.type == "cpu"

    def blocks(self) -> Iterator[tuple[int, Tensor, Tensor, Tensor | None]]:
        """Yield (flat index of its first position, a, b, mask) for each block, in row-major order.

        A block is part of one row or some whole rows, so that its positions follow each other.
        """
        tensors = [self.a, self.b] if self.mask is None else [self.a, self.b, self.mask]
        size = BLOCK if self.on_cpu else _ACCELERATOR_BLOCK
        flat = all(t.is_contiguous() for t in tensors)
        start = 0
        for a, b, *rest in zip(*(_cut(t, size, flat) for t in tensors), strict=True):
            yield start, a, b, rest[0] if rest else None
            start += a.numel()


def _cut(tensor: Tensor, size: int, flat: bool) -> Iterable[Tensor]:
    """Return a tensor's positions in row-major order, in flat pieces that are copies unless flat.

    A piece is part of one row or some whole rows, so its positions follow each other.
    """
    if flat:
        return torch.split(tensor.view(-1), size)
    grid = tensor.reshape(1, -1) if tensor.dim() < 2 else tensor.flatten(0, -2)
    rows = max(1, size // grid.shape[1])
    return (
        piece.reshape(-1)
        for group in torch.split(grid, rows)
        for piece in torch.split(group, size, 1)
    )


@dataclass(slots=True)
class _Running:
    """The blocks so far, merged; the first of equally large mismatches stays the worst."""

    valid: int = 0
    count: int = 0
    nonfinite: int = 0
    top: int = NO_DISTANCE
    units: int = 0
    sum_sq: float = 0.0
    ulp: int = 0
    rank: int = 0
    place: int | None = None

    def add(self, start: int, stats: Stats) -> None:
        self.valid += stats.valid
        self.count += stats.count
        self.nonfinite += stats.nonfinite
        self.top = max(self.top, stats.top)
        self.units += stats.units
        self.sum_sq += stats.sum_sq
        self.ulp = max(self.ulp, stats.ulp)
        if stats.worst is not None and stats.rank > self.rank:
            self.rank, self.place = stats.rank, start + stats.worst


def _run(task: _Task) -> _Running:
    running = _Running()
    flushes = bits.flushes_subnormals()
    scratch = Scratch.of(min(BLOCK, task.a.numel()), task.dtype, task.a.device)
    for start, a_part, b_part, mask_part in task.blocks():
        a, b = _cast(a_part, task.dtype), _cast(b_part, task.dtype)
        if a.numel() != scratch.size:
            scratch = Scratch.of(a.numel(), task.dtype, a.device)
        mask = None if mask_part is None else _mask_bits(mask_part, scratch)
        stats = None
        if task.on_cpu and (not flushes or kernels.safe_from_flushing(a, b, scratch)):
            stats = kernels.swift(a, b, mask, scratch, running.rank)
        running.add(start, stats or kernels.general(a, b, mask))
    return running


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.dtype == dtype:
        return x
    if dtype == torch.float64 and bits.flushes_subnormals():
        return kernels.widen(x.to(torch.float32))
    return x.to(dtype)


def _mask_bits(mask: Tensor, scratch: Scratch) -> Tensor:
    """Return -1 where the mask is 1 and 0 where it is 0, after looking that it holds no more."""
    if mask.dtype != torch.bool:
        low, high = (float(x) for x in torch.aminmax(mask))
        if not (low >= 0 and high <= 1):
            raise ValueError(f"mask must hold only 0 and 1, not {low if low < 0 else high}")
    wanted = scratch.mask.copy_(mask.view(torch.uint8) if mask.dtype == torch.bool else mask)
    same = _has_magnitudes if bits.flushes_subnormals() else torch.equal
    if mask.is_floating_point() and not same(mask, wanted.to(mask.dtype)):
        raise ValueError("mask must hold only 0 and 1, not a number between them")
    return wanted.neg_()


def _has_magnitudes(x: Tensor, sizes: Tensor) -> bool:
    """Say whether floats but for their signs are these, by patterns: subnormals are not 0."""
    ints = _PATTERNS[x.dtype]
    return torch.equal(x.view(ints) & torch.iinfo(ints).max, sizes.view(ints))


def _partial(task: _Task, token_ids: Tensor | None, sample_ids: Sequence[Any] | None) -> Partial:
    total = task.a.numel()
    found = _run(task) if total else _Running()
    worst = None
    if found.place is not None:
        worst = _worst(task, found.place, token_ids, sample_ids)
    return Partial(
        valid=found.valid,
        count=found.count,
        nonfinite=found.nonfinite,
        max=None if found.top == NO_DISTANCE else bits.double(found.top),
        sum=bits.nearest_double(found.units),
        sum_sq=found.sum_sq if isfinite(found.sum_sq) else None,
        ulp_max=min(found.ulp, MAX_COUNT),
        total=total,
        worst=worst,
    )


def _worst(
    task: _Task, place: int, token_ids: Tensor | None, sample_ids: Sequence[Any] | None
) -> Worst:
    shape = task.a.shape
    row, column = divmod(place, shape[-1] if shape else 1)
    index = _unravel(place, shape)
    a, b = (_cast(x[index].reshape(1), task.dtype) for x in (task.a, task.b))
    return Worst(
        position=(row, column),
        a=_number(a),
        b=_number(b),
        ulp=min(kernels.ulp_max(a, b), MAX_COUNT),
        token_id=None if token_ids is None else int(token_ids[index]),
        sample=None if sample_ids is None else str(sample_ids[row]),
    )


def _unravel(place: int, shape: torch.Size) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        place, last = divmod(place, size)
        index.insert(0, last)
    return tuple(index)


def _number(x: Tensor) -> float:
    pattern = int(x.view(LAYOUTS[x.dtype].ints))
    return bits.double(pattern) if x.dtype == torch.float64 else bits.double_of_single(pattern)
