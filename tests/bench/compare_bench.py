"""How long a comparison takes, against reading the inputs, plain torch and verl's formulas."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tests.bench.tables import table
from torch import Tensor

import rankfold_client as rf

SHAPES = ((8, 4096), (32, 8192), (64, 16384))
ROUNDS = 15
# More than any cache of the machines that this runs on.
FLUSH_BYTES = 256 << 20

Inputs = tuple[Tensor, Tensor, Tensor]


def read(a: Tensor, b: Tensor, mask: Tensor) -> None:
    """Read every byte of the inputs once: numpy's maximum over their integers."""
    for tensor in (a, b):
        tensor.view(torch.int32).numpy().max()
    mask.view(torch.uint8).numpy().max()


def naive(a: Tensor, b: Tensor, mask: Tensor) -> None:
    """The same statistics by float operations on whole tensors, right only where all is finite."""
    differ = (a != b) & mask
    distance = torch.where(differ, (a - b).abs(), torch.zeros_like(a)).double()
    steps = (a.view(torch.int32).long() - b.view(torch.int32).long()).abs() * mask
    for value in (mask.sum(), differ.sum(), distance.max(), distance.sum(), steps.max()):
        value.item()
    distance.square().sum().item()


def verl(a: Tensor, b: Tensor, mask: Tensor) -> None:
    """The formulas of verl's debug metrics: probabilities, their difference and correlation."""
    actor, rollout = torch.exp(a), torch.exp(b)
    distance = torch.masked_select((actor - rollout).abs(), mask)
    x, y = torch.masked_select(actor, mask), torch.masked_select(rollout, mask)
    x, y = x - x.mean(), y - y.mean()
    pearson = (x * y).sum() / (x.square().sum().sqrt() * y.square().sum().sqrt())
    for value in (distance.max(), distance.mean(), distance.std(), pearson):
        value.item()


def ours(a: Tensor, b: Tensor, mask: Tensor) -> None:
    """A comparison with every field of its partial."""
    rf.compare(a, b, mask)


SUBJECTS = {"read": read, "compare": ours, "naive": naive, "verl": verl}


def inputs(shape: tuple[int, int]) -> Iterator[tuple[str, Inputs]]:
    """Yield log-probs by how they differ, with a mask of four in five."""
    generator = torch.Generator().manual_seed(0)
    a = -5 * torch.rand(shape, generator=generator)
    mask = torch.rand(shape, generator=generator) < 0.8
    one = a.clone()
    one[shape[0] // 2, 77] -= 0.5
    mask[shape[0] // 2, 77] = True
    # Independent of the values, so that some signs differ at zero as with real log-probs.
    drift = a + 0.01 * torch.randn(shape, generator=generator)
    yield "equal", (a, a.clone(), mask)
    yield "one differs", (a, one, mask)
    yield "rounded to bf16", (a, a.bfloat16().float(), mask)
    yield "all differ", (a, drift.clamp(max=0.0), mask)


def run() -> list[dict[str, Any]]:
    """Return a row for each shape, kind of input and state of the caches: medians in ms."""
    with one_thread():
        return [
            {"shape": "x".join(map(str, shape)), "inputs": name, "caches": caches}
            | figures(medians(tensors, cold=caches == "cold"))
            for shape in SHAPES
            for name, tensors in inputs(shape)
            for caches in ("cold", "warm")
        ]


def medians(tensors: Inputs, *, cold: bool) -> dict[str, float]:
    """Return each subject's median time in ms over interleaved runs."""
    flush = torch.zeros(FLUSH_BYTES // 8 if cold else 0, dtype=torch.int64)
    times: dict[str, list[float]] = {name: [] for name in SUBJECTS}
    for _ in range(ROUNDS):
        for name, subject in SUBJECTS.items():
            flush.add_(1)
            times[name].append(timed(subject, tensors))
    return {name: statistics.median(seen) for name, seen in times.items()}


def timed(subject: Callable[[Tensor, Tensor, Tensor], None], tensors: Inputs) -> float:
    """Return the milliseconds of this thread's processor time: there is no other thread."""
    started = time.thread_time()
    subject(*tensors)
    return 1000 * (time.thread_time() - started)


def figures(times: dict[str, float]) -> dict[str, float]:
    """Return the times with the ratios that the bars are about."""
    told = {f"{name} ms": round(value, 3) for name, value in times.items()}
    return told | {
        "compare / read": round(times["compare"] / times["read"], 1),
        "naive / compare": round(times["naive"] / times["compare"], 1),
        "verl / compare": round(times["verl"] / times["compare"], 1),
    }


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread while the body runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def main() -> None:
    """Print the figures."""
    print(table(run()))


if __name__ == "__main__":
    main()
