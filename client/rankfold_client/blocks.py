"""Cuts tensors of one shape into flat pieces, in row-major order, never copying the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor


def blocks(tensors: Sequence[Tensor], size: int) -> Iterator[tuple[Tensor, ...]]:
    """Yield the pieces of each tensor beside each other, contiguous and of up to `size` elements.

    Where not all of the tensors are contiguous, a piece may be a copy, and is smaller therefore.
    """
    flat = all(tensor.is_contiguous() for tensor in tensors)
    if flat and tensors[0].numel() <= size:
        yield tuple(tensor.view(-1) for tensor in tensors)
        return
    cuts = [torch.split(t.view(-1), size) if flat else _cut(t, size // 4) for t in tensors]
    yield from zip(*cuts, strict=True)


def _cut(tensor: Tensor, size: int) -> Iterable[Tensor]:
    if tensor.numel() <= size:
        yield tensor.contiguous().view(-1)
        return
    rows = size * tensor.shape[0] // tensor.numel()
    for group in torch.split(tensor, rows or 1):
        yield from [group.contiguous().view(-1)] if rows else _cut(group[0], size)
