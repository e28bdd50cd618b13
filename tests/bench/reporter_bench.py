"""What a reporter costs training: its thread, its calls, and the longest of them in bad times."""

from __future__ import annotations

import gc
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tests.support.server import Server

import rankfold_client as rf
from rankfold_client.items import pack, partial_item
from rankfold_client.report import encode
from rankfold_client.transport import packed

Rows = list[dict[str, Any]]

SERIES = "training/rollout_logprobs"
BATCH = 1000
RATE = 1000
CALLS = 100_000
HOSTILE = ("hang after reading", "flood body", "flood chunks", "flood interim")


def run(*, quick: bool) -> Rows:
    """Return the cost of the thread by kind of partial, then of the calls by state of the net."""
    return [*_threads(3 if quick else 10), *_calls(CALLS // 10 if quick else CALLS)]


def _partials(kind: str) -> list[rf.Partial]:
    """Return partials as a trainer makes them: equal, or with a worst token."""
    chance = random.Random(0)

    def number() -> float:
        return torch.tensor(chance.random() / 100, dtype=torch.float32).item()

    def differing() -> rf.Partial:
        position = chance.randrange(64), chance.randrange(4096)
        worst = rf.Worst(position, -number(), -number(), 5, token_id=chance.randrange(50_000))
        return rf.Partial(
            valid=chance.randrange(3000, 4096),
            count=chance.randrange(1, 3000),
            max=number(),
            sum=10 * chance.random(),
            sum_sq=chance.random(),
            ulp_max=chance.randrange(10_000),
            total=4096,
            worst=worst,
        )

    equal = rf.Partial(valid=4000, count=0, max=0.0, sum=0.0, sum_sq=0.0, ulp_max=0, total=4096)
    return [equal if kind == "equal" else differing() for _ in range(BATCH)]


def _threads(seconds: int) -> Rows:
    """Measure a reporter that sends a thousand partials in each second, evenly."""
    with tempfile.TemporaryDirectory() as folder, Server(f"sqlite:///{folder}/rankfold.db") as it:
        return [
            {"what": f"thread, {kind}, {'spool' if spool else 'no spool'}"}
            | _thread(it.url, _partials(kind), seconds, f"{folder}/{kind}" if spool else "")
            for kind in ("equal", "differ")
            for spool in (False, True)
        ]


def _thread(url: str, partials: list[rf.Partial], seconds: int, spool: str) -> dict[str, Any]:
    run = f"bench-{random.randrange(1 << 60):x}"
    reporter = rf.Reporter(run, url=url, rank=0, world_size=1, spool=spool)
    reporter.flush()
    before, begun = _background(), time.perf_counter()
    caller = time.thread_time()
    for second in range(seconds):
        for microbatch, partial in enumerate(partials):
            reporter.partial(SERIES, partial)
            if microbatch % 10 == 9:
                due = begun + second + (microbatch + 1) / RATE
                time.sleep(max(0.0, due - time.perf_counter()))
        reporter.end_iteration()
    caller = time.thread_time() - caller
    took = time.perf_counter() - begun
    used = _background() - before
    assert reporter.close(30.0) == 0
    items = [pack(partial_item(SERIES, 5, n, p)) for n, p in enumerate(partials)]
    body = encode({"run": run, "rank": 0}, items).raw
    return {
        "partials / s": round(seconds * BATCH / took),
        "% of a core": round(100 * used / took, 2),
        "us a call": round(1e6 * caller / seconds / BATCH, 1),
        "bytes a partial": round(len(packed(body)[0]) / BATCH, 1),
        "before gzip": round(len(body) / BATCH, 1),
    }


def _background() -> float:
    """Return the processor time that all threads but this one have used so far."""
    return time.process_time() - time.thread_time()


def _calls(calls: int) -> Rows:
    """Time each of many comparisons with every kind of aggregator, and without one beside it.

    Each in a process of its own, for what sets off a garbage collection sets it off once.
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder, Server(f"sqlite:///{folder}/rankfold.db") as it:
        rows.append(_beside("aggregator up", it.url, calls))
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nobody = f"http://127.0.0.1:{gone.getsockname()[1]}"
    rows.append(_beside("aggregator down", nobody, calls))
    with tempfile.TemporaryDirectory() as folder:
        rows.append(_beside("aggregator down, spool", nobody, calls, folder))
    for name in HOSTILE:
        with _hostile(name) as url:
            rows.append(_beside(name, url, calls))
    return rows


def _beside(what: str, url: str, calls: int, spool: str = "") -> dict[str, Any]:
    """Return the figures of an aggregator and, behind a slash, those without one."""
    without, found = (_apart(address, calls, spool) for address in ("", url))
    told = {name: f"{value:,} / {without[name]:,}" for name, value in found.items()}
    return {"what, with / without": what} | told


def _apart(*arguments: object) -> dict[str, float]:
    """Return what `main` prints in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.reporter_bench", *map(str, arguments)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    told: dict[str, float] = json.loads(ended.stdout)
    return told


def main() -> None:
    """Print what calls cost: the arguments are a URL, which may be empty, their number, a spool."""
    url, calls, spool = sys.argv[1:]
    torch.set_num_threads(1)
    rf.warm_up()
    print(json.dumps(_times(url, int(calls), spool)))


def _times(url: str, calls: int, spool: str) -> dict[str, float]:
    """Return how long comparisons took by the clock and in this thread's own processor time.

    Where others use the machine, or the host of a virtual one, the longest calls are theirs.
    Whatever a call is held up by is told apart: collections, and waits for the interpreter's
    lock, for a lock of ours or for the disk.
    """
    a = -5 * torch.rand(4, 64)
    b = a.clone()
    b[1, 7] += 1
    reporter = rf.Reporter("b", url=url, rank=0, world_size=1, reports=bool(url), spool=spool)
    wall, own, held = (array("d", bytes(8 * calls)) for _ in range(3))
    collected = _Collections()
    with Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").open("rb") as scheduled:
        for call in range(calls):
            before, used, begun = (
                _queued(scheduled.fileno()),
                time.thread_time(),
                time.perf_counter(),
            )
            reporter.compare(SERIES, a, b)
            wall[call] = time.perf_counter() - begun
            own[call] = time.thread_time() - used
            held[call] = wall[call] - own[call] - (_queued(scheduled.fileno()) - before)
            if call % 1000 == 999:
                reporter.end_iteration()
    collected.stop()
    reporter.close(0.1)
    return {
        "us a call": round(1e6 * statistics.median(wall), 1),
        "p99.99 us": round(1e6 * sorted(wall)[-max(1, calls // 10000)]),
        "longest own ms": round(1e3 * max(own), 2),
        "own over 5 ms": sum(value > 0.005 for value in own),
        "longest ms": round(1e3 * max(wall), 2),
        "over 5 ms": sum(value > 0.005 for value in wall),
        "held ms": round(1e3 * max(held), 2),
        "collections": collected.number,
        "of them ms": round(1e3 * collected.longest, 2),
    }


class _Collections:
    """Counts garbage collections, in whatever thread, and knows how long the longest took."""

    def __init__(self) -> None:
        self.number, self.longest = 0, 0.0
        self._begun = 0.0
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        """Count no more."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, _: object) -> None:
        if phase == "start":
            self._begun = time.perf_counter()
        else:
            self.number += 1
            self.longest = max(self.longest, time.perf_counter() - self._begun)


def _queued(scheduled: int) -> float:
    """Return for how many seconds this thread could have run and was given no processor.

    On a machine that others use that is the most of the longest calls. What is left of a call
    without it and without the thread's own time, it was held: by the interpreter's lock, by a
    lock of ours or by the disk.
    """
    return int(os.pread(scheduled, 100, 0).split()[1]) / 1e9


@contextmanager
def _hostile(name: str) -> Iterator[str]:
    """Run a hostile server in a process of its own."""
    command = [sys.executable, "-m", "tests.support.unruly", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


if __name__ == "__main__":
    main()
