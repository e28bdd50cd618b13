"""Two tensors and a mask become a partial: exactly, and never as large as they are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from rankfold.partial import Partial
from rankfold_client import bits, blocks, compiled, general, kernels
from rankfold_client.kernels import Scratch
from rankfold_client.operands import Operands, operands, position
from rankfold_client.pending import Pending, launch
from rankfold_client.stats import Label, Mismatch, Stats

P = ParamSpec("P")
R = TypeVar("R")


def _outside_graphs(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function as one that torch.compile breaks its graph for and leaves alone.

    That is what torch.compiler.disable is for, but it imports the compiler, which takes longer
    than all of torch: it is asked only once the compiler is there.
    """
    guarded: list[Callable[P, R]] = []

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not guarded:
            disable = cast("Callable[[Callable[P, R]], Callable[P, R]]", torch.compiler.disable)
            guarded.append(disable(function))
        return guarded[0](*args, **kwargs)

    return call


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
    CPU the inputs are read once, by the compiled form where `warm_up` built it, and under 1 MiB
    is taken beside them; on an accelerator the result is waited for, unlike in a `Reporter`.

    Args:
        a: the trainer's values: float64, float32, bfloat16 or float16, of any shape and strides,
            or nested with layout torch.jagged and two dimensions.
        b: the rollout's values: of the same shape and on the same device.
        mask: bool, or integers or floats that are all 0 or 1, of the same shape and on the same
            device; positions where it is 0 are left out. Weights are refused: give
            `weights != 0`. None counts every position.
        token_ids: integers of the same shape, from which the worst position's is taken.
        sample_ids: a sequence of one name for each row, from which the worst position's is taken.

    Returns:
        The partial with every optional field. A position is (row, column) with the leading
        dimensions flattened to rows; a flat tensor has the one row 0. What a report cannot hold
        is cut: `ulp_max` and `worst.ulp` at 2**53 - 1 and `sum` at the largest double, which only
        float64 can pass; a `sum_sq` beyond the doubles is None.

    Raises:
        ValueError: what was given is no torch tensor with values of its own, shapes, devices or
            dtypes do not fit, or the mask holds another value.
        RuntimeError: a graph is being captured on the accelerator, or it failed.
    """
    found = _begin(a, b, mask, token_ids, sample_ids)
    return found if isinstance(found, Partial) else found.result()


@_outside_graphs
def begin(
    a: Tensor,
    b: Tensor,
    mask: Tensor | None = None,
    *,
    token_ids: Tensor | None = None,
    sample_ids: Sequence[Any] | None = None,
) -> Partial | Pending:
    """Begin a comparison: its partial from a CPU, and what stands for it from an accelerator.

    Nothing in it waits for the accelerator. Arguments and errors are those of `compare`.
    """
    return _begin(a, b, mask, token_ids, sample_ids)


def _begin(
    a: Tensor,
    b: Tensor,
    mask: Tensor | None,
    token_ids: Tensor | None,
    sample_ids: Sequence[Any] | None,
) -> Partial | Pending:
    given = operands(a, b, mask, token_ids, sample_ids)
    with torch.inference_mode():
        if given.a.device.type != "cpu" and given.a.numel():
            return launch(given)
        stats = _on_cpu(given) if given.a.numel() else Stats()
        label = None if stats.worst is None else _label(given, stats.worst)
        return stats.partial(given.a.numel(), given.layout.width, label)


def _on_cpu(given: Operands) -> Stats:
    if not all(torch.equal(other, given.offsets[0]) for other in given.offsets[1:]):
        raise ValueError("jagged tensors must have the same rows")
    kernel = compiled.kernel(given.layout.dtype)
    tensors = given.tensors[: 2 + (given.mask is not None)]
    found = None if kernel is None else _compiled(kernel, given, tensors)
    if found is None:
        with _gradual():
            return _eager(given, tensors)
    return found


def _compiled(kernel: compiled.Kernel, given: Operands, tensors: Sequence[Tensor]) -> Stats | None:
    """Return the statistics; None where the mask is at fault."""
    whole = all(tensor.is_contiguous() for tensor in tensors)
    parts = [tuple(tensors)] if whole else blocks.blocks(tensors, kernels.block_size(given.layout))
    found, start = Stats(), 0
    for a, b, *rest in parts:
        mask = rest[0] if rest else None
        stats = compiled.statistics(kernel, a, b, mask, given.layout.width == 64)
        if stats is None:
            return None
        found.add(start, stats)
        start += a.numel()
    return found


def _eager(given: Operands, tensors: Sequence[Tensor]) -> Stats:
    layout = given.layout
    size = kernels.block_size(layout)
    scratch = Scratch.of(min(size, given.a.numel()), layout)
    found, start = Stats(), 0
    for a_part, b_part, *rest in blocks.blocks(tensors, size):
        if a_part.numel() != scratch.size:
            scratch = Scratch.of(a_part.numel(), layout)
        a, b = scratch.cast(0, a_part), scratch.cast(1, b_part)
        mask = rest[0] if rest else None
        if mask is not None:
            _check_mask(mask)
        stats = kernels.swift(a, b, mask, scratch, found.rank)
        if stats is None:
            stats = general.stats_of(general.row(a, b, mask, None, layout).tolist(), layout)
        found.add(start, stats)
        start += a.numel()
    return found


@contextmanager
def _gradual() -> Iterator[None]:
    """Keep subnormals on this thread, which may flush them, while the body runs."""
    flushes = bits.flushes_subnormals()
    if flushes:
        torch.set_flush_denormal(False)
    try:
        yield
    finally:
        if flushes:
            torch.set_flush_denormal(True)


def _check_mask(mask: Tensor) -> None:
    """Refuse a mask that is not all 0 and 1."""
    if mask.dtype == torch.bool:
        return
    low, high = (float(x) for x in torch.aminmax(mask))
    if not (low >= 0 and high <= 1):
        raise ValueError(f"mask must hold only 0 and 1, not {high if low >= 0 else low:g}")
    if mask.is_floating_point() and not torch.equal(mask, mask.ceil()):
        raise ValueError("mask must hold only 0 and 1, not a number between them")


def _label(given: Operands, worst: Mismatch) -> Label:
    offsets = given.offsets[0].tolist() if given.offsets else None
    where = position(worst.place, given.columns, offsets)
    token = None
    if given.token_ids is not None:
        token = int(given.token_ids.take(torch.tensor(worst.place, device="cpu")))
    sample = None if given.samples is None else str(given.samples[where[0]])
    return Label(where, token, sample)
