from __future__ import annotations

import contextlib
import itertools
import json
import math
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import rankfold_client as rf
from rankfold.partial import MAX_COUNT
from rankfold_client import kernels
from unit.client import oracle
from unit.client.oracle import FLOAT32, FLOAT64, Format

CASES = json.loads((Path(__file__).parents[2] / "cases" / "comparisons.json").read_text())
FORMATS = {
    torch.float64: FLOAT64,
    torch.float32: FLOAT32,
    torch.bfloat16: oracle.BFLOAT16,
    torch.float16: oracle.FLOAT16,
}
INTS = {16: torch.int16, 32: torch.int32, 64: torch.int64}
PAIRS = list(itertools.product(FORMATS, repeat=2))
MASKS = (torch.bool, torch.uint8, torch.int64, torch.float32, torch.bfloat16)


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
    return first, second, a, b, mask


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


@pytest.mark.parametrize("flush", [False, True], ids=["gradual", "flushing"])
@settings(max_examples=300, deadline=None)
@given(drawn=inputs(), mask_dtype=st.sampled_from(MASKS))
def test_compare_equals_an_oracle_in_whole_numbers(
    flush: bool, drawn: Any, mask_dtype: torch.dtype
) -> None:
    """Every dtype pair gives the contract's numbers, whatever the thread does to subnormals."""
    first, second, a, b, mask = drawn
    left, right = tensor(a, first), tensor(b, second)
    wanted = torch.tensor(mask).to(mask_dtype)
    with flushing(flush):
        got = rf.compare(left, right, wanted)
    check(first, second, a, b, mask, got)


@pytest.mark.parametrize("flush", [False, True], ids=["gradual", "flushing"])
@settings(max_examples=150, deadline=None)
@given(drawn=inputs())
def test_general_route_equals_the_swift_one(flush: bool, drawn: Any) -> None:
    """What an accelerator would run gives the same statistics as the blocks of a CPU."""
    first, _, a, b, mask = drawn
    if FORMATS[first].width == 16 or FORMATS[first].width != FORMATS[drawn[1]].width:
        return
    left, right, wanted = tensor(a, first), tensor(b, first), torch.tensor(mask)
    with flushing(flush), torch.inference_mode():
        general = kernels.general(left, right, wanted)
        whole = rf.compare(left, right, wanted)
    assert (general.valid, general.count, general.nonfinite) == (
        whole.valid,
        whole.count,
        whole.nonfinite,
    )
    assert min(general.ulp, MAX_COUNT) == whole.ulp_max
    assert general.worst == (None if whole.worst is None else whole.worst.position[1])


def number(value: float | str) -> float:
    """Return a case's number, of which some are words."""
    return float(value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_compare_answers_the_case(case: dict[str, Any]) -> None:
    """Numbers that public frameworks got wrong come out as the cases say."""
    dtype = getattr(torch, case["dtype"])
    a, b = (torch.tensor([number(x) for x in case[name]], dtype=dtype) for name in "ab")
    expect = dict(case["expect"])
    if case["name"] == "float64_one_ulp":
        # The case counts float32 steps; the contract counts them in the compared dtype.
        expect["ulp_max"] = 1
    got = rf.compare(a, b, torch.tensor(case["mask"]))
    fields = {name: getattr(got, name) for name in expect}
    assert fields.pop("sum") == pytest.approx(expect.pop("sum"), rel=1e-9, abs=0)
    assert fields == expect


def noisy(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probs, the same through bfloat16, and a mask."""
    generator = torch.Generator().manual_seed(seed)
    a = -5 * torch.rand(shape, generator=generator)
    return a, a.bfloat16().float(), torch.rand(shape, generator=generator) < 0.8


def naive(a: Tensor, b: Tensor, mask: Tensor) -> tuple[int, int, float, float]:
    """Return valid, count, max and sum by plain torch."""
    d = (a - b).abs()[mask]
    return int(mask.sum()), int((d > 0).sum()), float(d.max()), float(d.double().sum())


@pytest.mark.parametrize(
    "shape", [(3, kernels.BLOCK), (2, kernels.BLOCK + 5), (70000,), (5, 7, 1999), (90000, 2)]
)
def test_compare_of_many_blocks_adds_them_up(shape: tuple[int, ...]) -> None:
    """Tensors over one block give what the whole gives, and the place of the largest."""
    a, b, mask = noisy(*shape)
    b.view(-1)[-2] -= 1.5
    mask.view(-1)[-2] = True
    got = rf.compare(a, b, mask)
    valid, count, largest, total = naive(a, b, mask)
    assert (got.valid, got.count, got.max) == (valid, count, largest)
    assert got.sum == pytest.approx(total, rel=1e-12)
    assert got.worst is not None
    columns = shape[-1]
    assert got.worst.position == divmod(a.numel() - 2, columns) if len(shape) > 1 else True


def test_compare_keeps_the_first_of_equal_mismatches_over_blocks() -> None:
    """Of equally large mismatches the first position is the worst, and a NaN beats them all."""
    a = torch.zeros(3, kernels.BLOCK)
    b = a.clone()
    b[1, 5] = b[1, 9] = b[2, 0] = 0.5
    assert rf.compare(a, b).worst == rf.Worst((1, 5), 0.0, 0.5, 0x3F000000)
    b[2, 7] = math.nan
    worst = rf.compare(a, b).worst
    assert worst is not None
    assert worst.position == (2, 7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_compare_takes_any_strides(dtype: torch.dtype) -> None:
    """Slices, transposes and expanded tensors compare like their contiguous copies."""
    a, b, mask = noisy(40, 3001)
    a, b = a.to(dtype), b.to(dtype)
    views = [
        (a[:, 1:], b[:, :-1], mask[:, 1:]),
        (a.T, b.T, mask.T),
        (a[::2], b[1::2], mask[::2]),
        (a, b[:1].expand(40, -1), mask[:1].expand(40, -1)),
        (a.reshape(20, 2, 3001).transpose(0, 1), b.reshape(2, 20, 3001), mask.reshape(2, 20, 3001)),
        (a[:, 0], b[:, 1], mask[:, 0]),
    ]
    for x, y, m in views:
        got = rf.compare(x, y, m)
        want = rf.compare(x.contiguous(), y.contiguous(), m.contiguous())
        assert got.sum == pytest.approx(want.sum, rel=1e-12)
        assert got.sum_sq == pytest.approx(want.sum_sq, rel=1e-12)
        # The blocks are cut elsewhere, so float64 adds in another order.
        assert replace(got, sum=want.sum, sum_sq=want.sum_sq) == want


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shift", [0.0, 1.0, 2.5, 10.0])
def test_compare_counts_steps_over_any_signs(dtype: torch.dtype, shift: float) -> None:
    """Negative, mixed and positive values, zeros of both signs among them: all steps count."""
    generator = torch.Generator().manual_seed(1)
    a = (shift - 5 * torch.rand(1, 300, generator=generator)).to(dtype)
    b = (a + 0.01 * torch.randn(1, 300, generator=generator)).clamp(max=shift).to(dtype)
    a[0, :3] = torch.tensor([0.0, -0.0, 0.0])
    b[0, :3] = torch.tensor([-0.0, 0.0, -1e-7])
    form = FORMATS[dtype]
    width = 2 * form.sign - 1
    x, y = ([v & width for v in t[0].view(INTS[form.width]).tolist()] for t in (a, b))
    check(dtype, dtype, x, y, [1] * 300, rf.compare(a, b))


def test_compare_on_many_threads_knows_its_own_flushing() -> None:
    """Blocks stay on the thread whose flush-to-zero flag was looked at."""
    tiny = torch.full((3, kernels.BLOCK), 1, dtype=torch.int32).view(torch.float32)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with flushing(True):
            got = rf.compare(tiny, torch.zeros_like(tiny))
    finally:
        torch.set_num_threads(before)
    assert (got.count, got.max, got.ulp_max) == (tiny.numel(), 2.0**-149, 1)


def test_compare_counts_signs_that_differ_across_zero() -> None:
    """Values on both sides of zero keep exact distances among many that agree in sign."""
    a, b, mask = noisy(2, 1000)
    a[0, 3], b[0, 3], mask[0, 3] = 2.0, -3.0, True
    a[1, 1], b[1, 1], mask[1, 1] = 0.0, -0.0, True
    got = rf.compare(a, b, mask)
    assert got.ulp_max == 0x40000000 + 0x40400000
    assert got.count == naive(a, b, mask)[1]


def test_compare_is_zero_size_safe() -> None:
    """A microbatch without positions is the identity element."""
    nothing = rf.Partial(valid=0, count=0, max=None, sum=0.0, sum_sq=0.0, ulp_max=0, total=0)
    for shape in ((0,), (0, 5), (5, 0), (0, 0, 3)):
        empty = torch.zeros(shape)
        assert rf.compare(empty, empty, torch.zeros(shape, dtype=torch.bool)) == nothing


def test_compare_takes_a_number_without_dimensions() -> None:
    """A 0-d tensor is one position."""
    got = rf.compare(torch.tensor(1.0), torch.tensor(1.5))
    assert (got.valid, got.max) == (1, 0.5)
    assert got.worst is not None
    assert got.worst.position == (0, 0)


def test_compare_names_the_worst_token_and_sample() -> None:
    """The worst position carries the token's id and its row's sample."""
    a = torch.zeros(2, 3)
    b = a.clone()
    b[1, 2] = -0.25
    got = rf.compare(a, b, token_ids=torch.arange(6).view(2, 3), sample_ids=["x", 17])
    assert got.worst == rf.Worst((1, 2), 0.0, -0.25, 0x3E800000, token_id=5, sample="17")


@pytest.mark.parametrize(
    ("a", "b", "extra", "words"),
    [
        (torch.zeros(2, 3), torch.zeros(3, 2), {}, r"b \(3, 2\) and a \(2, 3\)"),
        (torch.zeros(2, device="meta"), torch.zeros(2), {}, "b on cpu and a on meta"),
        (torch.zeros(2).int(), torch.zeros(2), {}, "a must be a float .* torch.int32"),
        (torch.zeros(2), torch.zeros(2).cfloat(), {}, "b must be a float .* torch.complex64"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.ones(3)}, r"mask \(3,\) and a \(2,\)"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.ones(2, device="meta")}, "mask on meta"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.ones(2).cfloat()}, "mask must be bool"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.tensor([0, 2])}, "only 0 and 1, not 2"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.tensor([0, -1])}, "not -1"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.tensor([0, 2**32])}, "only 0 and 1"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.tensor([0, 0.5])}, "between"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.tensor([0, math.nan])}, "not nan"),
        (torch.zeros(2), torch.zeros(2), {"token_ids": torch.ones(3).int()}, r"token_ids \(3,\)"),
        (torch.zeros(2, 2), torch.zeros(2, 2), {"sample_ids": ["x"]}, "1 names and a has 2 rows"),
    ],
)
def test_compare_refuses_what_does_not_fit(
    a: Tensor, b: Tensor, extra: dict[str, Any], words: str
) -> None:
    """What cannot be compared is a ValueError at the call that names both sides."""
    with pytest.raises(ValueError, match=words):
        rf.compare(a, b, **extra)


TWO = torch.zeros(2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"a": [0.0, 0.0]}, "a must be a torch tensor, not list"),
        ({"b": None}, "b must be a torch tensor, not None"),
        ({"b": np.zeros(2)}, "b must be a torch tensor, not numpy.ndarray"),
        ({"mask": [1, 1]}, "mask must be a torch tensor, not list"),
        ({"token_ids": [1, 2]}, "token_ids must be a torch tensor, not list"),
        ({"a": TWO.to("meta"), "b": TWO.to("meta")}, "a and b must hold values, .* meta"),
        ({"token_ids": torch.ones(2, dtype=torch.int64, device="meta")}, "token_ids must hold"),
        ({"token_ids": TWO}, "token_ids must be integers, not torch.float32"),
        ({"token_ids": TWO.bool()}, "token_ids must be integers, not torch.bool"),
        ({"sample_ids": (name for name in "x")}, "sample_ids must be a sequence .* generator"),
        ({"sample_ids": {0: "x"}}, "sample_ids must be a sequence .* not dict"),
        ({"sample_ids": {"x"}}, "sample_ids must be a sequence .* not set"),
        ({"sample_ids": torch.tensor(0)}, "sample_ids must be a sequence .* not torch.Tensor"),
        ({"sample_ids": 1}, "sample_ids must be a sequence .* not int"),
    ],
)
def test_compare_refuses_what_is_no_dense_tensor(given: dict[str, Any], words: str) -> None:
    """What holds no values to look at is a ValueError that names what was given."""
    with pytest.raises(ValueError, match=words):
        rf.compare(**({"a": TWO, "b": torch.ones(2)} | given))


@pytest.mark.filterwarnings("ignore::UserWarning")  # they call themselves beta
@pytest.mark.parametrize("name", ["a", "b", "mask", "token_ids"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.eye(2).to_sparse(), "a dense tensor, not torch.sparse_coo"),
        (lambda: torch.eye(2).to_sparse_csr(), "a dense tensor, not torch.sparse_csr"),
        (lambda: torch.nested.nested_tensor([torch.ones(1), TWO]), "one tensor .* nested"),
        (
            lambda: torch.nested.nested_tensor([torch.ones(1), TWO], layout=torch.jagged),
            "one tensor .* nested",
        ),
    ],
)
def test_compare_refuses_sparse_and_nested_tensors(
    name: str, make: Callable[[], Tensor], words: str
) -> None:
    """What keeps its values in another way than dense tensors is named, wherever it is given."""
    with pytest.raises(ValueError, match=f"{name} must be {words}"):
        rf.compare(**({"a": torch.zeros(2, 2), "b": torch.zeros(2, 2)} | {name: make()}))


@pytest.mark.parametrize("names", [("x", "y"), "xy", np.array(["x", "y"], dtype=object)])
def test_compare_takes_sample_ids_in_any_sequence(names: Any) -> None:
    """Tuples, strings and arrays of names are as good as lists."""
    worst = rf.compare(torch.zeros(2, 1), torch.tensor([[0.0], [1.0]]), sample_ids=names).worst
    assert worst is not None
    assert worst.sample == "y"


@pytest.mark.parametrize("flush", [False, True], ids=["gradual", "flushing"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compare_reads_negated_views_as_what_they_say(dtype: torch.dtype, flush: bool) -> None:
    """A view whose memory holds the negative values compares like its copy, also as a mask."""
    parts = torch.tensor([[1.0, -2.0], [3.0, 1e-40], [-0.5, math.nan]], dtype=dtype)
    view = torch.view_as_complex(parts).conj().imag
    assert view.is_neg()
    copy = torch.tensor([2.0, -1e-40, math.nan], dtype=dtype)
    other = torch.tensor([2.0, 1e-40, 0.0], dtype=dtype)
    masks = torch.complex(torch.ones(3), torch.tensor([-1.0, -1.0, 0.0])).conj().imag
    with flushing(flush):
        for left, right in ((view, other), (other, view)):
            got, want = (
                rf.compare(left, right, masks),
                rf.compare(
                    *((copy, other) if left is view else (other, copy)),
                    torch.tensor([True, True, False]),
                ),
            )
            assert got == want
            assert (got.valid, got.count) == (2, 1)
        assert rf.compare(view, other).nonfinite == 1


@pytest.mark.parametrize("flush", [False, True], ids=["gradual", "flushing"])
@pytest.mark.parametrize("dtype", list(FORMATS))
@pytest.mark.parametrize("pattern", [1, -1])
def test_compare_refuses_a_mask_below_the_normal_numbers(
    dtype: torch.dtype, flush: bool, pattern: int
) -> None:
    """A mask of the smallest subnormal is neither 0 nor 1, though the thread reads it as 0."""
    form = FORMATS[dtype]
    smallest = tensor([0, 1 if pattern > 0 else form.sign | 1], dtype)
    fine = tensor([form.sign, form.bias << form.fraction], dtype)  # -0.0 and 1.0
    with flushing(flush):
        with pytest.raises(ValueError, match="mask must hold only 0 and 1"):
            rf.compare(torch.zeros(2), torch.ones(2), smallest)
        assert rf.compare(torch.zeros(2), torch.ones(2), fine).valid == 1


def test_compare_is_never_part_of_the_graph() -> None:
    """Tensors that require gradients compare like others and keep theirs."""
    a = torch.tensor([-1.0, -2.0], requires_grad=True)
    with torch.inference_mode():
        inside = rf.compare(torch.zeros(2), torch.ones(2))
    got = rf.compare(a * 1, torch.tensor([-1.0, -2.5]))
    assert (inside.count, got.count, got.max) == (2, 1, 0.5)
    (a * a).sum().backward()
    assert a.grad is not None
    assert a.grad.tolist() == [-2.0, -4.0]


def test_compare_inside_a_compiled_function_breaks_its_graph_only() -> None:
    """A function under torch.compile that compares still gives the partial."""
    found: list[rf.Partial] = []

    @torch.compile(backend="eager")
    def step(x: Tensor) -> Tensor:
        y = x + 1
        found.append(rf.compare(x, y))
        return y * 2

    assert step(torch.zeros(4)).tolist() == [2.0] * 4
    assert [p.count for p in found] == [4]


def test_compare_ignores_a_default_device() -> None:
    """What torch puts new tensors on does not matter to a comparison."""
    a, b = torch.zeros(3), torch.ones(3)
    torch.set_default_device("meta")
    try:
        assert rf.compare(a, b).count == 3
    finally:
        torch.set_default_device(None)


def peak_bytes(a: Tensor, b: Tensor, mask: Tensor) -> int:
    """Return the most memory that torch holds at once for a comparison."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        rf.compare(a, b, mask)
    kineto = profile.profiler.kineto_results
    events = [event for event in kineto.events() if event.name() == "[memory]"]
    sizes = [event.nbytes() for event in sorted(events, key=lambda e: e.start_ns())]
    return max(itertools.accumulate(sizes))


def test_compare_allocates_under_two_mebibytes() -> None:
    """Beside the inputs a comparison of many megabytes takes little memory."""
    tensors = noisy(64, 16384)
    with ThreadPoolExecutor(1) as fresh:  # nothing that another comparison kept
        peak = fresh.submit(peak_bytes, *tensors).result()
    assert 0 < peak < 2 * 1024 * 1024
