"""What the tests of a comparison share: tensors of patterns, both forms, the check by oracle."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import struct
from collections.abc import Iterator
from fractions import Fraction
from unittest import mock

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

import rankfold_client as rf
from rankfold.partial import MAX_COUNT
from rankfold_client import compiled
from unit.client import oracle
from unit.client.oracle import FLOAT32, FLOAT64, Format

# `make test-oracle` asks for more.
EXAMPLES = int(os.environ.get("RANKFOLD_ORACLE_EXAMPLES", "150"))
FORMATS = {
    torch.float64: FLOAT64,
    torch.float32: FLOAT32,
    torch.bfloat16: oracle.BFLOAT16,
    torch.float16: oracle.FLOAT16,
}
INTS = {16: torch.int16, 32: torch.int32, 64: torch.int64}
PAIRS = list(itertools.product(FORMATS, repeat=2))
FORMS = [
    "eager",
    pytest.param(
        "compiled",
        marks=pytest.mark.skipif(
            not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="there is no C compiler here"
        ),
    ),
]
MASKS = (torch.bool, torch.uint8, *INTS.values(), torch.int8, *FORMATS)


@contextlib.contextmanager
def flushing(wanted: bool) -> Iterator[None]:
    """Flush subnormals to zero on this thread while the body runs."""
    torch.set_flush_denormal(wanted)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def tensor(patterns: list[int], dtype: torch.dtype, *shape: int) -> Tensor:
    """Return a tensor of these bit patterns."""
    form = FORMATS[dtype]
    signed = [p - 2 * form.sign if p & form.sign else p for p in patterns]
    flat = torch.tensor(signed, dtype=INTS[form.width]).view(dtype)
    return flat.reshape(shape) if shape else flat


@contextlib.contextmanager
def form(name: str) -> Iterator[None]:
    """Compare on the CPU in the eager or in the compiled form while the body runs."""
    if name == "compiled":
        assert compiled.warm_up()
        yield
    else:
        with mock.patch.object(compiled, "kernel", return_value=None):
            yield


def patterns(form: Format) -> st.SearchStrategy[int]:
    """Return patterns of a format, the awkward ones often."""
    normal, one = 1 << form.fraction, form.bias << form.fraction
    sizes = [0, 1, 2, normal - 1, normal, normal + 1, one, one + 1, form.infinity - 1]
    sizes += [form.infinity, form.infinity + 1, form.infinity | normal >> 1, one - 3 * normal]
    # Numbers whose differences fall below the smallest normal one.
    sizes += [normal * 3 + 1, normal * (form.fraction + 2), normal * (form.fraction + 3) - 1]
    awkward = st.sampled_from([s for s in sizes if s < form.sign])
    near = st.integers(one - 4, one + 4)
    size = st.one_of(awkward, near, st.integers(0, form.sign - 1))
    return st.builds(lambda s, negative: s | form.sign * negative, size, st.booleans())


@st.composite
def inputs(draw: st.DrawFn) -> tuple[torch.dtype, torch.dtype, list[int], list[int], list[int]]:
    """Draw two dtypes, two lists of patterns that agree in places, and a mask."""
    first, second = draw(st.sampled_from(PAIRS))
    size = draw(st.integers(1, 12))
    a = draw(st.lists(patterns(FORMATS[first]), min_size=size, max_size=size))
    b = draw(st.lists(patterns(FORMATS[second]), min_size=size, max_size=size))
    if first == second:
        steps = draw(st.lists(st.sampled_from([None, 0, 0, 1]), min_size=size, max_size=size))
        b = [y if s is None else x ^ s for x, y, s in zip(a, b, steps, strict=True)]
    mask = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    # Vector registers, and the tiles of the compiled form, have to be filled too.
    times = draw(st.sampled_from([1] * 8 + [5] * 3 + [130]))
    return first, second, a * times, b * times, mask * times


def fraction_of(value: float) -> Fraction:
    """Return a double as a fraction without computing with it."""
    number = oracle.decode(struct.unpack("<Q", struct.pack("<d", value))[0], FLOAT64)
    assert isinstance(number, Fraction)
    return number


def assert_sum(value: float, exact: Fraction) -> None:
    """Hold a float64 sum against the exact one, up to the order of adding."""
    largest = fraction_of(1.7976931348623157e308)
    assert abs(fraction_of(value) - min(exact, largest)) <= exact / 10**12


def check(
    first: torch.dtype,
    second: torch.dtype,
    a: list[int],
    b: list[int],
    mask: list[int],
    got: rf.Partial,
) -> None:
    """Hold a partial against the oracle, field by field."""
    form = FLOAT64 if torch.float64 in (first, second) else FLOAT32
    left = [oracle.convert(p, FORMATS[first], form) for p in a]
    right = [oracle.convert(p, FORMATS[second], form) for p in b]
    want = oracle.compare(left, right, mask, form)
    assert (got.valid, got.count, got.nonfinite) == (want.valid, want.count, want.nonfinite)
    assert (None if got.max is None else fraction_of(got.max)) == want.max
    assert (got.ulp_max, got.total) == (min(want.ulp_max, MAX_COUNT), len(a))
    assert_sum(got.sum, want.sum)
    if got.sum_sq is None:
        assert want.sum_sq > fraction_of(1.7e308)
    else:
        # Squares below the doubles vanish one by one.
        assert abs(fraction_of(got.sum_sq) - want.sum_sq) <= want.sum_sq / 10**12 + Fraction(
            len(a), 2**1022
        )
    assert (got.worst is None) == (want.worst is None)
    if got.worst is not None and want.worst is not None:
        assert got.worst.position == (0, want.worst)
        steps = oracle.ulps(left[want.worst], right[want.worst], form)
        assert got.worst.ulp == min(steps, MAX_COUNT)
        for value, pattern in ((got.worst.a, left), (got.worst.b, right)):
            bits = struct.unpack("<Q", struct.pack("<d", value))[0]
            number = oracle.decode(pattern[want.worst], form)
            assert oracle.decode(bits, FLOAT64) == number
    assert got.faults() == []


def noisy(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probs, the same through bfloat16, and a mask."""
    generator = torch.Generator().manual_seed(seed)
    a = -5 * torch.rand(shape, generator=generator)
    return a, a.bfloat16().float(), torch.rand(shape, generator=generator) < 0.8


def naive(a: Tensor, b: Tensor, mask: Tensor) -> tuple[int, int, float, float]:
    """Return valid, count, max and sum by plain torch."""
    d = (a - b).abs()[mask]
    return int(mask.sum()), int((d > 0).sum()), float(d.max()), float(d.double().sum())
