"""What a comparison must give, from bit patterns in whole numbers and fractions alone.

No float is computed with, so the answer is the same under flush-to-zero, and nothing is shared
with the code under test.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

NAN = "nan"
INF = "inf"


@dataclass(frozen=True)
class Format:
    """An IEEE binary format: its width and the bits of its fraction."""

    width: int
    fraction: int

    @property
    def exponent(self) -> int:
        """Bits of the exponent."""
        return self.width - 1 - self.fraction

    @property
    def bias(self) -> int:
        """What is taken off the exponent."""
        return (1 << self.exponent - 1) - 1

    @property
    def infinity(self) -> int:
        """The pattern of infinity."""
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def sign(self) -> int:
        """The pattern of -0."""
        return 1 << self.width - 1

    @property
    def unit(self) -> Fraction:
        """The smallest subnormal."""
        return Fraction(2) ** (1 - self.bias - self.fraction)


FLOAT16, BFLOAT16 = Format(16, 10), Format(16, 7)
FLOAT32, FLOAT64 = Format(32, 23), Format(64, 52)


def decode(pattern: int, form: Format) -> Fraction | str:
    """Return a pattern's number, or 'nan', 'inf' or '-inf'."""
    size, negative = pattern & ~form.sign, bool(pattern & form.sign)
    if size > form.infinity:
        return NAN
    if size == form.infinity:
        return "-" + INF if negative else INF
    exponent, fraction = size >> form.fraction, size & (1 << form.fraction) - 1
    whole = fraction if exponent == 0 else (fraction | 1 << form.fraction) << exponent - 1
    return form.unit * (-whole if negative else whole)


def encode(number: Fraction, form: Format) -> int:
    """Return the pattern of the nearest number, ties to even, infinity beyond the largest."""
    whole = abs(number) / form.unit
    shift = max(0, int(whole).bit_length() - form.fraction - 1)
    rounded = round(whole / (1 << shift))
    # Adding the rounded significand to the exponent carries by itself; a subnormal has shift 0.
    pattern = (shift << form.fraction) + rounded
    return min(pattern, form.infinity) | (form.sign if number < 0 else 0)


def convert(pattern: int, source: Format, target: Format) -> int:
    """Return the pattern of the same number in another format that can hold it."""
    value = decode(pattern, source)
    if value == NAN:
        return target.infinity + 1
    if isinstance(value, str):
        return target.infinity | (target.sign if value == "-" + INF else 0)
    return encode(value, target) | (target.sign if pattern & source.sign else 0)


@dataclass(frozen=True)
class Expected:
    """The exact statistics: sums as fractions, the largest distance too."""

    valid: int
    count: int
    nonfinite: int
    max: Fraction | None
    sum: Fraction
    sum_sq: Fraction
    ulp_max: int
    worst: int | None


def ulps(a: int, b: int, form: Format) -> int:
    """Return how many numbers of the format lie between two patterns; 0 for non-finite ones."""
    if max(a & ~form.sign, b & ~form.sign) >= form.infinity:
        return 0
    places = [-(p & ~form.sign) if p & form.sign else p for p in (a, b)]
    return abs(places[0] - places[1])


def compare(a: list[int], b: list[int], mask: list[int], form: Format) -> Expected:
    """Return what the contract says of two lists of patterns in the compared format."""
    finite, infinite, equal, steps = {}, [], 0, 0
    for index, (x, y, wanted) in enumerate(zip(a, b, mask, strict=True)):
        if not wanted:
            continue
        left, right = decode(x, form), decode(y, form)
        if left == right and left != NAN:
            equal += 1
            continue
        steps = max(steps, ulps(x, y, form))
        if isinstance(left, str) or isinstance(right, str):
            infinite.append(index)
            continue
        distance = decode(encode(abs(left - right), form), form)
        if isinstance(distance, str):
            infinite.append(index)
        else:
            finite[index] = distance
    largest = max(finite.values(), default=Fraction(0) if equal else None)
    places = infinite or [i for i, d in finite.items() if d == largest]
    return Expected(
        valid=sum(mask),
        count=len(finite) + len(infinite),
        nonfinite=len(infinite),
        max=largest,
        sum=sum(finite.values(), Fraction(0)),
        sum_sq=sum((d * d for d in finite.values()), Fraction(0)),
        ulp_max=steps,
        worst=places[0] if places else None,
    )
