"""Comparisons on a GPU: equal to the CPU's, without waiting, on any stream, and at what cost."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from tests.bench.verl_metrics import metrics
from torch import Tensor

import rankfold_client as rf
from rankfold_client.compare import begin
from rankfold_client.pending import Pending

if not torch.cuda.is_available():
    pytest.skip("there is no CUDA device here", allow_module_level=True)

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
MASKS = (torch.bool, torch.uint8, torch.int64, torch.float32)
SHAPE = (64, 16384)


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """Let torch raise where the host waits for the device."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def log_probs(*shape: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probs on the CPU that differ a little and hold what is awkward, and a mask."""
    generator = torch.Generator().manual_seed(0)
    a = -5 * torch.rand(shape, generator=generator)
    b = a + 1e-6 * torch.randn(shape, generator=generator)
    flat_a, flat_b = a.view(-1), b.view(-1)
    flat_a[:4] = torch.tensor([0.0, -torch.inf, 1e-45, 3e-42])
    flat_b[:4] = torch.tensor([-0.0, -torch.inf, 0.0, 1e-45])
    return a, b, torch.rand(shape, generator=generator) < 0.8


def assert_same(got: rf.Partial, want: rf.Partial) -> None:
    """Hold two partials against each other: floats add in another order."""
    assert got.sum == pytest.approx(want.sum, rel=1e-12)
    assert got.sum_sq == pytest.approx(want.sum_sq, rel=1e-12)
    assert replace(got, sum=want.sum, sum_sq=want.sum_sq) == want


@pytest.mark.parametrize(("first", "second"), itertools.product(FLOATS, repeat=2))
@pytest.mark.parametrize("mask_dtype", MASKS)
@pytest.mark.parametrize("worst", [None, torch.inf])
def test_a_gpu_finds_what_the_cpu_does(
    first: torch.dtype, second: torch.dtype, mask_dtype: torch.dtype, worst: float | None
) -> None:
    """Every dtype pair and mask, subnormals, signed zeros and infinities included."""
    a, b, mask = log_probs(7, 3001)
    if worst is not None:
        b[5, 17], mask[5, 17] = worst, True
    x, y, m = a.to(first), b.to(second), mask.to(mask_dtype)
    ids = torch.arange(7 * 3001).view(7, 3001)
    want = rf.compare(x, y, m, token_ids=ids, sample_ids="abcdefg")
    there = [t.cuda() for t in (x, y, m, ids)]
    assert_same(rf.compare(*there[:3], token_ids=there[3], sample_ids="abcdefg"), want)
    turned = rf.compare(*(t.T for t in there[:3]))
    assert (turned.count, turned.max, turned.ulp_max) == (want.count, want.max, want.ulp_max)


@pytest.mark.usefixtures("no_waiting")
def test_begin_waits_for_nothing() -> None:
    """Under a mode that raises on each synchronisation, also for strided and large tensors."""
    a, b, mask = (t.pin_memory().cuda(non_blocking=True) for t in log_probs(*SHAPE))
    big = torch.zeros(5 << 20, device="cuda")
    found = [begin(a, b, mask), begin(a.T, b.T, mask.T), begin(a, b), begin(big, big, big.int())]
    assert all(isinstance(f, Pending) for f in found)
    assert [f.result().total for f in found if isinstance(f, Pending)] == [a.numel()] * 3 + [
        big.numel()
    ]


def test_begin_returns_before_the_device_is_done() -> None:
    """A busy stream does not hold up the host, and the inputs may be freed at once."""
    a, b, mask = log_probs(*SHAPE)
    want = rf.compare(a, b, mask)
    there = [t.cuda() for t in (a, b, mask)]
    rf.compare(*there)  # whatever is loaded once
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(1 << 30)
        found = begin(*there)
    assert isinstance(found, Pending)
    assert not found.ready()
    there.clear()
    for _ in range(8):  # the default stream gets new memory, which must not be theirs
        torch.full(SHAPE, 7.0, device="cuda")
    assert_same(found.result(), want)


def test_a_captured_graph_is_refused() -> None:
    """A replay would report nothing."""
    a = torch.zeros(4, device="cuda")
    rf.compare(a, a)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="outside of the capture"), torch.cuda.graph(graph):
        begin(a, a)


def test_wrong_masks_are_told_by_the_result() -> None:
    """Only the device saw it."""
    a = torch.zeros(4, device="cuda")
    found = begin(a, a, torch.tensor([0, 1, 2, 1], device="cuda"))
    assert isinstance(found, Pending)
    with pytest.raises(ValueError, match="only 0 and 1"):
        found.result()


def seconds(function: Callable[[], object], *, host: bool) -> float:
    """Return the median seconds of a call: until it returns, or until the device is done."""
    times = []
    for _ in range(30):
        torch.cuda.synchronize()
        started = time.perf_counter()
        function()
        if not host:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


@pytest.mark.parametrize("shape", [(8, 4096), (64, 16384), (256, 16384)])
def test_print_what_it_costs(shape: tuple[int, int], capsys: pytest.CaptureFixture[str]) -> None:
    """No bar: the ratios to reading the inputs once and to verl's metrics."""
    a, b, mask = (t.cuda() for t in log_probs(*shape))
    verl = metrics()
    subjects: dict[str, Callable[[], object]] = {
        "read": lambda: (a.view(torch.int32).amax(), b.view(torch.int32).amax(), mask.any()),
        "begin": lambda: begin(a, b, mask),
        "verl": lambda: verl(a, b, mask),
    }
    with capsys.disabled():
        for name, subject in subjects.items():
            subject()
            host, device = (1e6 * seconds(subject, host=on_host) for on_host in (True, False))
            print(f"\n{shape} {name}: host {host:.0f} us, until done {device:.0f} us", end="")
