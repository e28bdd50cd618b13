from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import rankfold_client as rf
from rankfold_client.kernels import block_size
from rankfold_client.layouts import SINGLE
from unit.client.comparing import FORMATS, INTS, check, flushing, naive, noisy

pytestmark = pytest.mark.usefixtures("each_form")

BLOCK = block_size(SINGLE)


@pytest.mark.parametrize("shape", [(3, BLOCK), (2, BLOCK + 5), (70000,), (5, 7, 1999), (90000, 2)])
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
    a = torch.zeros(3, BLOCK)
    b = a.clone()
    b[1, 5] = b[1, 9] = b[2, 0] = 0.5
    assert rf.compare(a, b).worst == rf.Worst((1, 5), 0.0, 0.5, 0x3F000000)
    b[2, 7] = math.nan
    worst = rf.compare(a, b).worst
    assert worst is not None
    assert worst.position == (2, 7)


@given(
    st.sampled_from([8, 40, 1001, 4096, BLOCK, BLOCK + 8, 2 * BLOCK]),
    st.lists(st.tuples(st.integers(0, 2 * BLOCK - 1), st.integers(1, 9)), max_size=3),
    st.sampled_from([torch.float32, torch.float64]),
    st.booleans(),
)
def test_compare_finds_a_few_mismatches_wherever_they_are(
    size: int, changes: list[tuple[int, int]], dtype: torch.dtype, masked: bool
) -> None:
    """What is looked at of a block that differs in few places is enough, to the last bit."""
    a = -1.0 - torch.arange(size).to(dtype) / (4 * BLOCK)  # all in one binade
    a[::7] *= -1  # signs that would matter if they were among the mismatches
    b, steps = a.clone(), {place % size: by for place, by in changes if place % size % 7}
    for place, by in steps.items():
        b.view(INTS[8 * dtype.itemsize])[place] += by
    mask = torch.ones(size, dtype=torch.bool) if masked else None
    if mask is not None:
        mask[0] = False
    got = rf.compare(a, b, mask)
    step = torch.finfo(dtype).eps
    assert (got.valid, got.count, got.total) == (size - masked, len(steps), size)
    assert (got.max, got.ulp_max) == (max(steps.values(), default=0) * step, got.max / step)
    assert got.sum == sum(steps.values()) * step
    assert got.sum_sq == sum(by * by for by in steps.values()) * step * step
    place = min((-by, place) for place, by in steps.items())[1] if steps else None
    assert place == (got.worst and got.worst.position[1])


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
    tiny = torch.full((3, BLOCK), 1, dtype=torch.int32).view(torch.float32)
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
    """A function under torch.compile that compares still gives the partial, each time."""
    found: list[rf.Partial] = []

    @torch.compile(backend="eager")
    def step(x: Tensor) -> Tensor:
        y = x + 1
        found.append(rf.compare(x, y))
        return y * 2

    for size in (4, 4, 5):
        assert step(torch.zeros(size)).tolist() == [2.0] * size
    assert [p.count for p in found] == [4, 4, 5]


class Watching(TorchFunctionMode):
    """A mode that does nothing but look on."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call what is called."""
        return func(*args, **kwargs or {})


class WatchingBelow(TorchDispatchMode):
    """Likewise, below autograd."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call what is called."""
        return func(*args, **kwargs or {})


@pytest.mark.parametrize(
    "mode",
    [
        Watching,
        WatchingBelow,
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.device("meta"),
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.autograd.detect_anomaly(check_nan=True),
    ],
)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_compare_is_the_same_in_any_mode(mode: Callable[[], AbstractContextManager[Any]]) -> None:
    """What the caller's code runs in changes nothing."""
    a, b, mask = noisy(3, 1000)
    b[1, 7], mask[1, 7] = math.inf, True
    ids = torch.arange(3000).view(3, 1000)
    want = rf.compare(a, b, mask, token_ids=ids)
    with mode():
        assert rf.compare(a, b, mask, token_ids=ids) == want


def test_compare_ignores_a_default_dtype() -> None:
    """What torch makes floats of by default does not matter to a comparison."""
    a, b, mask = noisy(3, 1000)
    want = rf.compare(a, b, mask)
    torch.set_default_dtype(torch.float16)
    try:
        assert rf.compare(a, b, mask) == want
    finally:
        torch.set_default_dtype(torch.float32)


def test_compare_ignores_a_default_device() -> None:
    """What torch puts new tensors on does not matter to a comparison."""
    a, b = torch.zeros(3), torch.ones(3)
    torch.set_default_device("meta")
    try:
        assert rf.compare(a, b).count == 3
    finally:
        torch.set_default_device(None)


def peak_bytes(function: Callable[[Tensor, Tensor, Tensor], object], *tensors: Tensor) -> int:
    """Return the most memory that torch holds at once for a function."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        function(*tensors)
    kineto = profile.profiler.kineto_results
    events = [event for event in kineto.events() if event.name() == "[memory]"]
    sizes = [event.nbytes() for event in sorted(events, key=lambda e: e.start_ns())]
    return max(itertools.accumulate(sizes), default=0)


@pytest.mark.parametrize("dtypes", [("float32",) * 2, ("bfloat16", "float64"), ("float16",) * 2])
@pytest.mark.parametrize("strided", [False, True])
def test_compare_allocates_under_a_mebibyte(dtypes: tuple[str, str], strided: bool) -> None:
    """Beside the inputs a comparison of many megabytes takes little memory."""
    a, b, mask = noisy(64, 16384)
    tensors = a.to(getattr(torch, dtypes[0])), b.to(getattr(torch, dtypes[1])), mask.to(torch.int64)
    if strided:
        tensors = tensors[0].T, tensors[1].T, tensors[2].T
    with ThreadPoolExecutor(1) as fresh:  # nothing that another comparison kept
        peak = fresh.submit(peak_bytes, rf.compare, *tensors).result()
    assert peak < 1024 * 1024 < peak_bytes(naive, a, b, mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compare_decides_what_is_not_finite_beside_what_is(dtype: torch.dtype) -> None:
    """Equal infinities are equal beside a mismatch, and a difference that overflows is none."""
    large = torch.finfo(dtype).max
    a = torch.tensor([math.inf, -math.inf, 1.0], dtype=dtype)
    b = torch.tensor([math.inf, -math.inf, 2.0], dtype=dtype)
    got = rf.compare(a, b)
    assert (got.count, got.nonfinite, got.max, got.sum) == (1, 0, 1.0, 1.0)
    got = rf.compare(*(torch.tensor(v, dtype=dtype) for v in ([large, 1.0], [-large, 2.0])))
    assert (got.count, got.nonfinite, got.max, got.sum) == (2, 1, 1.0, 1.0)
    got = rf.compare(*(torch.tensor([v, math.nan], dtype=dtype) for v in (large, -large)))
    assert (got.count, got.nonfinite, got.max, got.sum, got.sum_sq) == (2, 2, None, 0.0, 0.0)
    assert (got.faults(), bool(got.ulp_max)) == ([], True)
