"""What an accelerator would do, as far as a machine without one can tell."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import rankfold_client as rf
from rankfold_client import pending
from rankfold_client.general import Column
from rankfold_client.operands import Operands, operands
from rankfold_client.pending import Pending, launch, rows
from unit.client.comparing import EXAMPLES, check, flushing, inputs, noisy, tensor


class NoWaiting(TorchDispatchMode):
    """Refuses every operation whose answer or shape the host would have to wait for."""

    TAGS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device, self.seen = device, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation that stays on the device."""
        assert not set(self.TAGS) & set(func.tags), f"{func} waits"
        answer = func(*args, **kwargs or {})
        for leaf in tree_leaves(answer):
            assert isinstance(leaf, Tensor), f"{func} answers with {leaf!r}"
            assert leaf.device.type == self.device, f"{func} leaves the device"
        self.seen += 1
        return answer


class FakeEvent:
    """An event of a device, which passes when the test says so."""

    def __init__(self) -> None:
        self.passed, self.broken, self.waited = False, False, 0

    def query(self) -> bool:
        """As torch.cuda.Event."""
        if self.broken:
            raise RuntimeError("device-side assert")
        return self.passed

    def synchronize(self) -> None:
        """As torch.cuda.Event."""
        self.waited += 1
        if self.broken:
            raise RuntimeError("device-side assert")
        self.passed = True


class FakeDevice:
    """Stands in for torch.cuda: its stream is the CPU's, which is always done."""

    def __init__(self, capturing: bool = False) -> None:
        self.event, self.capturing = FakeEvent(), capturing

    @contextlib.contextmanager
    def device(self, _device: torch.device) -> Iterator[None]:
        """As torch.cuda."""
        yield

    def current_stream(self, _device: torch.device) -> FakeDevice:
        """As torch.cuda."""
        return self

    def record_event(self) -> FakeEvent:
        """As torch.cuda.Stream."""
        return self.event

    def is_current_stream_capturing(self) -> bool:
        """As torch.cuda."""
        return self.capturing


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Let the CPU be an accelerator's memory; return what was held for its stream."""
    kept: list[Tensor] = []
    monkeypatch.setattr(Tensor, "record_stream", lambda self, _stream: kept.append(self))
    monkeypatch.setattr(pending, "_to_host", lambda found: found.clone())
    return kept


def moved(given: Operands, device: str) -> Operands:
    """Return operands on another device."""
    there = {
        name: value.to(device)
        for name in ("a", "b", "mask", "token_ids")
        if (value := getattr(given, name)) is not None
    }
    return replace(given, offsets=tuple(t.to(device) for t in given.offsets), **there)


def some(dtype: torch.dtype = torch.float32, **given: Any) -> Operands:
    """Return operands that differ in places."""
    a, b, mask = noisy(4, 50)
    ids = torch.arange(200, dtype=torch.int32).view(4, 50)
    every = {"mask": mask, "token_ids": ids, "samples": list("wxyz")} | given
    return operands(a.to(dtype), b.to(dtype), *every.values())


def nested(*lengths: int) -> Tensor:
    """Return jagged rows of these lengths."""
    return torch.nested.nested_tensor([torch.rand(n) for n in lengths], layout=torch.jagged)


CASES: list[Callable[[], Operands]] = [
    some,
    lambda: some(torch.float64, mask=None),
    lambda: some(torch.bfloat16, mask=torch.ones(4, 50, dtype=torch.int64), token_ids=None),
    lambda: operands(*(t.T for t in noisy(40, 30)), None, None),
    lambda: operands(nested(3, 4), nested(3, 4), None, None, None),
]


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("case", CASES)
def test_statistics_need_no_answer_from_the_device(
    case: Callable[[], Operands], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No value is asked for, no shape depends on one, and nothing is copied to the host."""
    monkeypatch.setattr(pending, "_BLOCK", 64)
    there = moved(case(), device)
    with NoWaiting(device) as mode, torch.inference_mode():
        told, starts = rows(there)
    assert told.shape == (len(starts), len(Column))
    assert mode.seen > len(starts) > 1 or there.offsets


@pytest.mark.parametrize(
    "ask", [lambda t: t.max().item(), lambda t: t[t > 0], lambda t: bool(t.any()), Tensor.nonzero]
)
def test_what_would_wait_is_seen(ask: Callable[[Tensor], object]) -> None:
    """The mode that proves it refuses what waits."""
    with pytest.raises(AssertionError, match="waits"), NoWaiting("cpu"):
        ask(torch.ones(3))


@pytest.mark.parametrize("flush", [False, True], ids=["gradual", "flushing"])
@settings(max_examples=EXAMPLES)
@given(drawn=inputs())
def test_statistics_of_a_device_equal_the_oracle(flush: bool, drawn: Any) -> None:
    """What an accelerator would send is exact, for every dtype pair; it flushes nothing."""
    first, second, a, b, mask = drawn
    given = operands(tensor(a, first), tensor(b, second), torch.tensor(mask), None, None)
    event = FakeEvent()
    with torch.inference_mode():
        told, starts = rows(given)
    with flushing(flush):  # as the reading thread may
        check(first, second, a, b, mask, Pending(given, told, starts, None, event).result())


def test_launch_gives_what_the_cpu_does(
    held: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over several blocks, with strides, tokens and names, the partial is the same."""
    a, b, mask = noisy(40, 301)
    ids, names = torch.arange(40 * 301).view(40, 301), [f"s{n}" for n in range(40)]
    for x, y, m, i in ((a, b, mask, ids), (a.T, b.T, mask.T, ids.T)):
        want = rf.compare(x, y, m, token_ids=i, sample_ids=names if x is a else None)
        for block in (700, 1 << 22):
            monkeypatch.setattr(pending, "_BLOCK", block)
            device = FakeDevice()
            given = operands(x, y, m, i, names if x is a else None)
            found = launch(given, device)  # type: ignore[arg-type]
            assert not found.ready()
            assert device.event.waited == 0
            device.event.passed = True
            got = found.result()
            assert found.ready()
            assert got.sum == pytest.approx(want.sum, rel=1e-12)
            assert replace(got, sum=want.sum, sum_sq=want.sum_sq) == want
            assert found.result() is got
    assert len(held) == 16


def test_launch_of_jagged_rows_sends_where_they_begin(held: list[Tensor]) -> None:
    """The position is found on the host, from a copy of the offsets."""
    a = nested(3, 0, 5)
    b = a.detach().clone()
    b.values()[6] += 1.0
    found = launch(operands(a, b, None, None, None), FakeDevice())  # type: ignore[arg-type]
    worst = found.result().worst
    assert worst is not None
    assert worst.position == (2, 3)
    assert len(held) == 2


@pytest.mark.parametrize(
    "given",
    [
        operands(torch.zeros(2), torch.zeros(2), torch.tensor([1, 2]), None, None),
        operands(torch.zeros(2), torch.zeros(2), torch.tensor([0.0, torch.nan]), None, None),
        operands(nested(3, 4), nested(4, 3), None, None, None),
    ],
)
@pytest.mark.usefixtures("held")
def test_result_refuses_what_only_the_device_could_see(given: Operands) -> None:
    """A mask of other values, or other rows, is told when the statistics arrive, each time."""
    found = launch(given, FakeDevice())  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(ValueError, match="mask must hold only 0 and 1, and jagged"):
            found.result()
    assert found.ready()


@pytest.mark.usefixtures("held")
def test_a_failed_device_is_told_by_the_result_only() -> None:
    """A failure of the device is no reason to wait for ever, nor to raise where nobody asked."""
    device = FakeDevice()
    found = launch(some(), device)  # type: ignore[arg-type]
    device.event.broken = True
    assert found.ready()
    with pytest.raises(RuntimeError, match="device-side assert"):
        found.result()


def test_launch_refuses_to_be_captured() -> None:
    """A replay of a captured graph would report nothing."""
    with pytest.raises(RuntimeError, match="outside of the capture"):
        launch(some(), FakeDevice(capturing=True))  # type: ignore[arg-type]
