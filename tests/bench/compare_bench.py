"""How long a comparison takes, against reading the inputs and verl's debug metrics."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest import mock

import torch
from tests.bench import verl_metrics
from tests.bench.tables import table
from torch import Tensor

import rankfold_client as rf
from rankfold_client import compiled

ROUNDS = 9
# More than any cache of the machines that this runs on.
FLUSH_BYTES = 256 << 20
EAGER = mock.patch.object(compiled, "_preparation", compiled.Preparation(None))

Inputs = tuple[Tensor, Tensor, Tensor]
Subject = Callable[[Tensor, Tensor, Tensor], object]


class Case(NamedTuple):
    """What is compared, and whether the caches hold it."""

    rows: int
    columns: int
    dtype: torch.dtype
    cold: bool


CASES = (
    Case(8, 4096, torch.float32, cold=False),
    Case(8, 4096, torch.float32, cold=True),
    Case(64, 16384, torch.float32, cold=True),
    Case(256, 16384, torch.float32, cold=True),
    Case(64, 16384, torch.bfloat16, cold=True),
    Case(256, 16384, torch.bfloat16, cold=True),
)


def read(a: Tensor, b: Tensor, mask: Tensor) -> None:
    """Read every byte of the inputs once: numpy's maximum over their integers."""
    for tensor in (a, b, mask):
        tensor.view(torch.int32).numpy().max()


def ours(a: Tensor, b: Tensor, mask: Tensor) -> None:
    """A comparison with every field of its partial, in the form that is set."""
    rf.compare(a, b, mask)


def inputs(case: Case) -> Iterator[tuple[str, Inputs]]:
    """Yield log-probs by how they differ, with a mask of four in five."""
    generator = torch.Generator().manual_seed(0)
    shape = case.rows, case.columns
    a = -5 * torch.rand(shape, generator=generator)
    mask = torch.rand(shape, generator=generator) < 0.8
    one = a.clone()
    one[case.rows // 2, 77] -= 0.5
    mask[case.rows // 2, 77] = True
    # Independent of the values, so that some signs differ at zero as with real log-probs.
    drift = (a + 0.01 * torch.randn(shape, generator=generator)).clamp(max=0.0)
    kinds = {"equal": a.clone(), "one differs": one}
    if case.dtype == torch.float32:
        kinds["rounded to bf16"] = a.bfloat16().float()
    kinds["all differ"] = drift
    for name, b in kinds.items():
        yield name, (a.to(case.dtype), b.to(case.dtype), mask)


def run() -> list[dict[str, Any]]:
    """Return a row for each case and kind of input: medians in ms, and their ratios."""
    subjects = {"read": read, "eager": ours, "verl": verl_metrics.metrics()}
    if rf.warm_up():
        subjects["compiled"] = ours
    with one_thread():
        return [
            {
                "shape": f"{case.rows}x{case.columns}",
                "dtype": str(case.dtype).removeprefix("torch."),
                "caches": "cold" if case.cold else "warm",
                "inputs": name,
            }
            | figures(medians(subjects, tensors, cold=case.cold))
            for case in CASES
            for name, tensors in inputs(case)
        ]


def medians(subjects: dict[str, Subject], tensors: Inputs, *, cold: bool) -> dict[str, float]:
    """Return each subject's median time in ms over interleaved runs."""
    flush = torch.zeros(FLUSH_BYTES // 8 if cold else 0, dtype=torch.int64)
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(ROUNDS if cold else 20 * ROUNDS):
        for name, subject in subjects.items():
            flush.add_(1)
            with EAGER if name == "eager" else nullcontext():
                times[name].append(timed(subject, tensors))
    return {name: statistics.median(seen) for name, seen in times.items()}


def timed(subject: Subject, tensors: Inputs) -> float:
    """Return the milliseconds of this thread's processor time: there is no other thread."""
    started = time.thread_time()
    subject(*tensors)
    return 1000 * (time.thread_time() - started)


def figures(times: dict[str, float]) -> dict[str, float]:
    """Return the times with the ratios that the bars are about."""
    told = {f"{name} ms": round(value, 3) for name, value in times.items()}
    for name in times.keys() & {"eager", "compiled"}:
        told[f"{name} / read"] = round(times[name] / times["read"], 1)
        told[f"verl's {verl_metrics.SOURCE} / {name}"] = round(times["verl"] / times[name], 1)
    return dict(sorted(told.items()))


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
