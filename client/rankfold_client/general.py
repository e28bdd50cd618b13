"""The statistics of a comparison on any device, for any values, without waiting for the device.

Everything stays in tensors whose shapes depend on no value: what is found is one row of
integers, which may be copied to the host whenever the device is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import torch
from torch import Tensor

from rankfold_client import bits
from rankfold_client.layouts import Layout
from rankfold_client.stats import Mismatch, Stats


class Column(IntEnum):
    """What a row holds. Doubles are patterns; `ulp` is moved by the sign bit to fit."""

    VALID = 0
    COUNT = 1
    NONFINITE = 2
    TOP = 3
    SUM = 4
    SUM_SQ = 5
    ULP = 6
    PLACE = 7
    A = 8
    B = 9
    TOKEN = 10
    WRONG = 11


def row(a: Tensor, b: Tensor, mask: Tensor | None, tokens: Tensor | None, layout: Layout) -> Tensor:
    """Return the columns as int64, on the device of `a`.

    Args:
        a: flat, of the compared dtype, at least one element.
        b: of the same length and dtype.
        mask: of the same length, of any dtype; None for all.
        tokens: integers of the same length, of which the worst position's is taken.
        layout: of the dtype.
    """
    x, y = a.view(layout.ints), b.view(layout.ints)
    x_size, y_size = x & layout.magnitude, y & layout.magnitude
    differ = ((x != y) & ((x_size | y_size) != 0)) | (x_size > layout.infinity)
    valid, wrong = _constant(a.numel(), a), None
    if mask is not None:
        wanted = mask != 0
        differ &= wanted
        valid = wanted.sum()
        wrong = None if mask.dtype == torch.bool else (wanted & (mask != 1)).any()
    distance = torch.where(differ, (a - b).abs(), 0.0)
    # A distance that is NaN is below nothing.
    finite = distance < torch.inf
    doubles = torch.where(finite, distance, 0.0).to(torch.float64)
    place = torch.where(finite, distance, torch.inf).argmax().view(1)
    found = {
        Column.VALID: valid,
        Column.COUNT: differ.sum(),
        Column.NONFINITE: (~finite).sum(),
        Column.TOP: doubles.amax().view(torch.int64),
        Column.SUM: doubles.sum().view(torch.int64),
        Column.SUM_SQ: doubles.square().sum().view(torch.int64),
        Column.ULP: _steps(x, y, x_size, y_size, differ, layout),
        Column.PLACE: place,
        Column.A: x.gather(0, place),
        Column.B: y.gather(0, place),
        Column.TOKEN: _constant(0, a) if tokens is None else tokens.gather(0, place),
        Column.WRONG: _constant(0, a) if wrong is None else wrong,
    }
    return torch.cat([found[column].to(torch.int64).view(1) for column in Column])


def _constant(value: int, like: Tensor) -> Tensor:
    return torch.full((), value, dtype=torch.int64, device=like.device)


def _steps(
    x: Tensor, y: Tensor, x_size: Tensor, y_size: Tensor, differ: Tensor, layout: Layout
) -> Tensor:
    """Return the largest distance in units in the last place over finite values, less 2**(w-1).

    A distance can pass the largest integer of the width, so it is held modulo 2**w, and turning
    the top bit over makes the signed maximum the unsigned one.
    """
    steps = torch.where((x ^ y) < 0, x_size + y_size, (x_size - y_size).abs())
    counted = differ & (torch.maximum(x_size, y_size) < layout.infinity)
    return (torch.where(counted, steps, 0) ^ layout.sign).amax()


def stats_of(told: Sequence[int], layout: Layout) -> Stats:
    """Return what a row says, which may have come from a device."""
    whole = (1 << layout.width) - 1
    worst = Mismatch(
        told[Column.PLACE], told[Column.A] & whole, told[Column.B] & whole, told[Column.TOKEN]
    )
    return Stats(
        valid=told[Column.VALID],
        count=told[Column.COUNT],
        nonfinite=told[Column.NONFINITE],
        top=told[Column.TOP],
        units=bits.units(told[Column.SUM]),
        sum_sq=bits.double(told[Column.SUM_SQ]),
        ulp=told[Column.ULP] - layout.sign,
        worst=worst if told[Column.COUNT] else None,
    )
