"""The statistics of one block on the CPU in few vectorised passes of torch: the eager form.

A block stays on the calling thread, as it is below torch's grain size, and what it is worked in
stays in the second-level cache.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from rankfold_client import bits
from rankfold_client.layouts import Layout
from rankfold_client.stats import Mismatch, Stats

_BLOCK_BYTES = 128 << 10
# A block that differs is told apart in so many, of which those at its ends may be equal.
_PARTS = 8


def block_size(layout: Layout) -> int:
    """Return how many elements a block has at most."""
    return 8 * _BLOCK_BYTES // layout.width


class Scratch:
    """The memory that `swift` works in: four arrays of one block, and two for what is cast.

    Args:
        size: elements of the block.
        layout: of the compared dtype.
    """

    def __init__(self, size: int, layout: Layout) -> None:
        self.size, self.layout = size, layout
        self.distance = torch.empty(size, dtype=layout.dtype, device="cpu")
        self.mask = torch.empty(size, dtype=layout.ints, device="cpu")
        room = torch.empty(2 * size, dtype=layout.ints, device="cpu")
        self.patterns = self.distance.view(layout.ints)
        self.ints, self.spare = room[:size], room[size:]
        # The integers are done with before the doubles begin, so both fit into one place.
        self.doubles = room.view(torch.float64) if layout.width == 32 else self.distance
        self._cast: dict[int, Tensor] = {}

    @classmethod
    def of(cls, size: int, layout: Layout) -> Scratch:
        """Return scratch of that size, this thread's kept one where it fits.

        Only scratch of whole blocks is kept: fresh memory costs a page fault per 4 KiB.
        """
        kept: Scratch | None = getattr(_kept, "scratch", None)
        if kept is not None and (kept.size, kept.layout) == (size, layout):
            return kept
        scratch = cls(size, layout)
        if size == block_size(layout):
            _kept.scratch = scratch
        return scratch

    def cast(self, which: int, block: Tensor) -> Tensor:
        """Return a block in the compared dtype, until the next one of the same operand."""
        if block.dtype == self.layout.dtype:
            return block
        if which not in self._cast:
            self._cast[which] = torch.empty_like(self.distance)
        return self._cast[which].copy_(block)


_kept = threading.local()


def swift(a: Tensor, b: Tensor, mask: Tensor | None, scratch: Scratch, beat: int) -> Stats | None:
    """Return a block's statistics, or None where only `general` can tell.

    That is where something is not finite, and where signs differ among mismatches. As
    differences are not flushed, a - b is 0 exactly where the finite a equals b, so one
    subtraction decides. One AND takes off the signs and what the mask leaves out, NaN too;
    whatever else is not finite shows in the largest pattern.

    Args:
        a: flat, of the scratch's dtype and length.
        b: likewise.
        mask: integers that are all 0 or 1, bool included; None counts every position.
        scratch: of the block's length.
        beat: the rank above which the worst position is wanted.
    """
    layout, patterns = scratch.layout, scratch.patterns
    torch.sub(a, b, out=scratch.distance)
    valid = scratch.size
    if mask is None:
        scratch.distance.abs_()
    else:
        counted = scratch.mask.copy_(mask)
        valid = int(counted.sum(dtype=layout.ints))
        patterns.bitwise_and_(counted.mul_(layout.magnitude))
    parts = _PARTS if scratch.size % _PARTS == 0 else 1
    tops = patterns.view(parts, -1).amax(1).tolist()
    top = max(tops)
    if top >= layout.infinity:
        return None
    if top == 0:
        return Stats(valid)
    # Few positions differ as a rule: the rest is done from the first part to the last that has any.
    length = scratch.size // parts
    differing = [part for part in range(parts) if tops[part]]
    place = slice(length * differing[0], length * (differing[-1] + 1))
    ulp = _steps(a[place], b[place], scratch, place, top, masked=mask is not None)
    if ulp is None:
        return None
    rank = top if layout.width == 64 else bits.double_bits(bits.double_of_single(top))
    start = length * tops.index(top)
    # Before the sums, because the count overwrites the distances.
    worst = _mismatch(a, b, start, patterns[start : start + length]) if rank > beat else None
    count, units, sum_sq = _sums(scratch, place)
    return Stats(valid, count, 0, rank, units, sum_sq, ulp, worst)


def _mismatch(a: Tensor, b: Tensor, start: int, patterns: Tensor) -> Mismatch:
    """Return the first of the largest mismatches, of which the part from `start` on has it."""
    at = start + int(patterns.argmax())
    ints = patterns.dtype
    whole = (1 << 8 * ints.itemsize) - 1
    return Mismatch(at, *(int(side[at].view(ints)) & whole for side in (a, b)))


def _sums(scratch: Scratch, place: slice) -> tuple[int, int, float]:
    """Return the count, the exact sum and the sum of squares of a place, and lose its distances."""
    distance, patterns = scratch.distance[place], scratch.patterns[place]
    doubles = distance
    if scratch.layout.width == 32:
        doubles = scratch.doubles[place].copy_(distance)
    units = bits.units(bits.double_bits(float(doubles.sum())))
    sum_sq = float(torch.dot(doubles, doubles))
    return int(patterns.clamp_(max=1).sum(dtype=patterns.dtype)), units, sum_sq


def _steps(
    a: Tensor, b: Tensor, scratch: Scratch, place: slice, top: int, *, masked: bool
) -> int | None:
    """Return the largest distance in units in the last place; None where only `general` can tell.

    Where all signs agree it is the difference of the patterns. Log-probs lie at or below zero:
    as patterns, +0.0 and a negative value are as far apart as +0.0 and -0.0 less their distance.
    While no two values are 2 apart, a distance is below the pattern of 2, half of how far apart
    the zeros are, so that one difference is never taken for the other.

    Args:
        a: flat, the part of the block that differs.
        b: likewise.
        scratch: of the block.
        place: where in the block the part is.
        top: the pattern of the largest |a - b| that is counted.
        masked: whether the scratch's mask is in use.
    """
    layout, out = scratch.layout, scratch.ints[place]
    x, y = a.view(layout.ints), b.view(layout.ints)
    largest = max(int(x.amax()), int(y.amax()))
    if largest > 0 and min(int(x.amin()), int(y.amin())) < 0:
        return None
    if largest == 0 and top >= layout.two:
        return None
    torch.sub(x, y, out=out)
    out.abs_()
    if masked:
        out.bitwise_and_(scratch.mask[place])
    steps = int(out.amax())
    if largest == 0 and steps > layout.two:
        # What -0.0 and +0.0 are apart wraps to 0 here, as it should.
        steps = layout.two - int(out.sub_(layout.two).abs_().amin())
    return steps
