"""The statistics of one block of two flat tensors of one dtype: the arithmetic of a comparison.

`swift` is few vectorised passes, for a CPU thread that keeps subnormals and a block without
anything non-finite; `general` is right for every input on every device. Both decide a mismatch
so that 0.0 equals -0.0, equal infinities are equal and NaN differs from everything.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch
from torch import Tensor

from rankfold_client import bits

# Blocks up to torch's grain size stay on the calling thread, whose flush-to-zero flag is the one
# that was looked at, and their scratch stays in the second-level cache.
BLOCK = 32768
NO_DISTANCE = -1
NONFINITE = 1 << 64

_SIGN = -(1 << 63)
_SMALLEST_NORMAL_SINGLE = 2.0**-126


@dataclass(frozen=True, slots=True)
class Layout:
    """The bit layout of a compared dtype, as patterns of its integers.

    Attributes:
        ints: the integers of the same width.
        top_bit: the number of the sign bit.
        infinity: the pattern of infinity, above every finite magnitude.
        two: the pattern of 2.0.
        safe: the magnitude from which differences are never subnormal, 0 or at least normal.
    """

    ints: torch.dtype
    top_bit: int
    infinity: int
    two: int
    safe: int

    @property
    def sign(self) -> int:
        """The pattern of -0.0, as the signed integer that it is."""
        return -(1 << self.top_bit)

    @property
    def magnitude(self) -> int:
        """All bits but the sign."""
        return (1 << self.top_bit) - 1


LAYOUTS = {
    torch.float32: Layout(torch.int32, 31, 0xFF << 23, 128 << 23, (127 - 102) << 23),
    torch.float64: Layout(torch.int64, 63, 0x7FF << 52, 1024 << 52, (1023 - 968) << 52),
}


@dataclass(frozen=True, slots=True)
class Stats:
    """What a block adds to a partial.

    Attributes:
        valid: positions under the mask.
        count: mismatching positions.
        nonfinite: mismatching positions whose distance is not finite.
        top: double pattern of the largest finite distance; NO_DISTANCE where there is none.
        units: sum of the finite distances in units of 2**-1074.
        sum_sq: sum of their squares, in float64.
        ulp: largest distance in units in the last place over finite values.
        worst: index of the largest mismatch; None where there is none or it is not above `beat`.
    """

    valid: int
    count: int = 0
    nonfinite: int = 0
    top: int = NO_DISTANCE
    units: int = 0
    sum_sq: float = 0.0
    ulp: int = 0
    worst: int | None = None

    @property
    def rank(self) -> int:
        """The largest mismatch as a number to compare blocks by."""
        return NONFINITE if self.nonfinite else self.top


class Scratch:
    """The memory that `swift` works in: arrays of one block at most.

    Args:
        size: elements of the largest block.
        dtype: the compared dtype.
        device: where the compared tensors are.
    """

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        ints = LAYOUTS[dtype].ints
        self.size, self.dtype, self.device = size, dtype, device
        self.distance = torch.empty(size, dtype=dtype, device=device)
        self.patterns = self.distance.view(ints)
        self.mask = torch.empty(size, dtype=ints, device=device)
        # The integers are done with before the doubles begin, so both fit into one place.
        self.doubles = torch.empty(size, dtype=torch.float64, device=device)
        self.ints = self.doubles.view(ints)[:size]
        self.spare = torch.empty(size, dtype=ints, device=device)

    @classmethod
    def of(cls, size: int, dtype: torch.dtype, device: torch.device) -> Scratch:
        """Return scratch of that size, this thread's kept one where it fits.

        Only scratch of whole blocks is kept: fresh memory costs a page fault per 4 KiB.
        """
        kept: Scratch | None = getattr(_kept, "scratch", None)
        wanted = (size, dtype, device)
        if kept is not None and (kept.size, kept.dtype, kept.device) == wanted:
            return kept
        scratch = cls(*wanted)
        if size == BLOCK:
            _kept.scratch = scratch
        return scratch


_kept = threading.local()


def swift(a: Tensor, b: Tensor, mask: Tensor | None, scratch: Scratch, beat: int) -> Stats | None:
    """Return a block's statistics, or None where only `general` can tell.

    While differences are not flushed a - b is 0 exactly where the finite a equals b, so one
    subtraction decides; whatever is not finite shows in the largest pattern.

    Args:
        a: flat, on the CPU.
        b: of the same length and dtype.
        mask: -1 where a position counts and 0 elsewhere, in the dtype's integers; None for all.
        scratch: of the block's length.
        beat: the rank above which the place of the worst position is wanted.
    """
    layout = LAYOUTS[a.dtype]
    patterns, doubles = scratch.patterns, scratch.doubles
    torch.sub(a, b, out=scratch.distance).abs_()
    if mask is not None:
        patterns.bitwise_and_(mask)
    top = int(patterns.amax())
    if top >= layout.infinity:
        return None
    valid = scratch.size if mask is None else -int(mask.sum(dtype=layout.ints))
    if top == 0:
        return Stats(valid, top=0 if valid else NO_DISTANCE)
    ulp = _swift_ulp(a, b, mask, scratch, top)
    doubles.copy_(scratch.distance)
    if a.dtype == torch.float32:
        top = bits.double_bits(bits.double_of_single(top))
    return Stats(
        valid,
        top=top,
        units=bits.units(bits.double_bits(float(doubles.sum()))),
        sum_sq=float(torch.dot(doubles, doubles)),
        ulp=ulp,
        worst=int(patterns.argmax()) if top > beat else None,
        # Last, because it overwrites the distances.
        count=int(patterns.clamp_(max=1).sum(dtype=layout.ints)),
    )


def _swift_ulp(a: Tensor, b: Tensor, mask: Tensor | None, scratch: Scratch, top: int) -> int:
    """Return the largest distance in units in the last place of finite values.

    Where all signs agree it is the difference of the patterns. Log-probs lie at or below zero:
    of +0.0 and negative values the difference of the magnitudes tells.
    """
    layout = LAYOUTS[a.dtype]
    x, y, out = a.view(layout.ints), b.view(layout.ints), scratch.ints
    (x_low, x_high), (y_low, y_high) = ((int(v) for v in torch.aminmax(p)) for p in (x, y))
    if max(x_high, y_high) < 0 or min(x_low, y_low) >= 0:
        return _span(torch.sub(x, y, out=out), mask)
    if max(x_high, y_high) <= 0:
        torch.bitwise_and(x, layout.magnitude, out=out)
        return _span(out.sub_(torch.bitwise_and(y, layout.magnitude, out=scratch.spare)), mask)
    # Values of two signs that are at least 2**31 (2**63) steps apart are at least 2.0 apart.
    if top < layout.two:
        return _span(torch.sub(_ordered(x, layout), _ordered(y, layout), out=out), mask)
    return ulp_max(a, b, scratch.patterns != 0)


def _span(steps: Tensor, mask: Tensor | None) -> int:
    """Return the largest magnitude of integers under a mask, which it applies in place."""
    if mask is not None:
        steps.bitwise_and_(mask)
    low, high = torch.aminmax(steps)
    return max(-int(low), int(high))


def _ordered(patterns: Tensor, layout: Layout) -> Tensor:
    """Return integers in the order of the values: negative magnitudes below zero."""
    sign = patterns >> layout.top_bit
    return (sign & layout.magnitude).bitwise_xor_(patterns).sub_(sign)


def safe_from_flushing(a: Tensor, b: Tensor, scratch: Scratch) -> bool:
    """Return whether each value is 0 or so large that no difference of two is subnormal."""
    layout, out = LAYOUTS[a.dtype], scratch.ints
    for x in (a, b):
        torch.bitwise_and(x.view(layout.ints), layout.magnitude, out=out)
        # One less as an unsigned number puts 0 last; the turned sign bit orders as unsigned.
        if int(out.sub_(1).bitwise_xor_(layout.sign).amin()) < layout.safe - 1 + layout.sign:
            return False
    return True


def general(a: Tensor, b: Tensor, mask: Tensor | None) -> Stats:
    """Return a block's statistics, whatever the values, the device and the rounding mode.

    Args:
        a: flat, of a compared dtype.
        b: of the same length and dtype.
        mask: nonzero where a position counts; None for all.
    """
    if a.numel() == 0:
        return Stats(0)
    mask = torch.ones_like(a, dtype=torch.bool) if mask is None else mask != 0
    differ = _differ(a, b) & mask
    valid, count = int(mask.sum()), int(differ.sum())
    if count == 0:
        return Stats(valid, top=0 if valid else NO_DISTANCE)
    distance = torch.where(differ, _distance(a, b), 0.0)
    infinite = differ & ~(distance < torch.inf)
    distance = torch.where(infinite, 0.0, distance)
    nonfinite = int(infinite.sum())
    top, units, place = _top_and_sum(a, b, differ, distance)
    return Stats(
        valid,
        count,
        nonfinite,
        top=top if valid > nonfinite else NO_DISTANCE,
        units=units,
        sum_sq=float(torch.dot(distance, distance)),
        ulp=ulp_max(a, b, differ),
        worst=int(infinite.byte().argmax()) if nonfinite else place,
    )


def _magnitudes(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the patterns without their signs, as int64, and where the signs are set."""
    layout = LAYOUTS[x.dtype]
    patterns = x.view(layout.ints)
    return (patterns & layout.magnitude).to(torch.int64), patterns < 0


def _differ(a: Tensor, b: Tensor) -> Tensor:
    """Return where a != b as IEEE values, decided on bit patterns."""
    layout = LAYOUTS[a.dtype]
    (a_size, _), (b_size, _) = _magnitudes(a), _magnitudes(b)
    unequal = (a.view(layout.ints) != b.view(layout.ints)) & ((a_size | b_size) != 0)
    return unequal | (a_size > layout.infinity)


def ulp_max(a: Tensor, b: Tensor, where: Tensor | None = None) -> int:
    """Return the largest distance in units in the last place over finite values of `where`.

    A distance of two float64 can pass 2**63, so int64 holds it modulo 2**64, and turning the
    top bit over makes the signed maximum the unsigned one.
    """
    infinity = LAYOUTS[a.dtype].infinity
    (a_size, a_sign), (b_size, b_sign) = _magnitudes(a), _magnitudes(b)
    steps = torch.where(a_sign == b_sign, (a_size - b_size).abs(), a_size + b_size)
    finite = (a_size < infinity) & (b_size < infinity)
    counted = finite if where is None else finite & where
    return int((torch.where(counted, steps, 0) ^ _SIGN).amax()) - _SIGN


def widen(x: Tensor) -> Tensor:
    """Return float32 as float64, subnormals kept under flush-to-zero."""
    size, sign = _magnitudes(x)
    tiny = size.to(torch.float64) * 2.0**-149
    return torch.where(size < 1 << 23, torch.where(sign, -tiny, tiny), x.to(torch.float64))


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """Return |a - b| as computed in the compared dtype, in float64.

    For float32, the float64 difference rounded to float32 is the float32 difference, because
    53 bits are at least twice 24 plus 2 (Figueroa 1995, When is double rounding innocuous?);
    below the normal numbers it is exact and needs no rounding, which would flush it.
    """
    if a.dtype == torch.float64:
        return (a - b).abs()
    exact = (widen(a) - widen(b)).abs()
    rounded = exact.to(torch.float32).to(torch.float64)
    return torch.where(exact < _SMALLEST_NORMAL_SINGLE, exact, rounded)


def _top_and_sum(a: Tensor, b: Tensor, differ: Tensor, distance: Tensor) -> tuple[int, int, int]:
    """Return the largest finite distance's pattern, the sum in units and the largest's place."""
    place = int(distance.argmax())
    top = bits.double_bits(float(distance[place]))
    units = bits.units(bits.double_bits(float(distance.sum())))
    if a.dtype == torch.float64 and a.device.type == "cpu" and bits.flushes_subnormals():
        return _with_flushed(a, b, differ, distance)
    return top, units, place


def _with_flushed(a: Tensor, b: Tensor, differ: Tensor, distance: Tensor) -> tuple[int, int, int]:
    """Return what `_top_and_sum` does, where float64 arithmetic flushes subnormals.

    A distance of float64 can only be subnormal, or come from a subnormal that matters, where
    both values are below 2**-968; there it is computed scaled by 2**1074. Squares of such
    distances are far below the smallest double and add nothing.
    """
    (a_size, _), (b_size, _) = _magnitudes(a), _magnitudes(b)
    limit = LAYOUTS[torch.float64].safe
    small = differ & (a_size < limit) & (b_size < limit)
    scaled = torch.where(small, (_in_units(a) - _in_units(b)).abs(), 0.0)
    rest = torch.where(small, 0.0, distance)
    rest_place, small_place = int(rest.argmax()), int(scaled.argmax())
    rest_top = bits.units(bits.double_bits(float(rest[rest_place])))
    small_top = int(scaled[small_place])
    units = bits.units(bits.double_bits(float(rest.sum()))) + int(scaled.sum())
    place = min(
        (-rest_top, rest_place),
        (-small_top, small_place),
    )[1]
    return bits.double_bits(bits.nearest_double(max(rest_top, small_top))), units, place


def _in_units(x: Tensor) -> Tensor:
    """Return float64 values below 2**-968 in units of 2**-1074, exactly; others are no use."""
    size, sign = _magnitudes(x)
    tiny = torch.where(sign, -size, size).to(torch.float64)
    return torch.where(size < 1 << 52, tiny, x * 2.0**1000 * 2.0**74)
