"""The machine that a benchmark ran on, the processes that it starts and what they used."""

from __future__ import annotations

import os
import platform
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile

import httpx
from tests.support.server import free_port

RESULTS = Path("bench-results")
STARTING = 20.0
_LIBRARIES = ("rankfold", "fastapi", "starlette", "uvicorn", "uvloop", "pydantic", "torch", "numpy")
_TICKS = os.sysconf("SC_CLK_TCK")


def machine() -> dict[str, object]:
    """Return what a figure depends on besides the code."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "load_average": round(os.getloadavg()[0], 2),
        "fsync_ms": round(1e3 * _fsync_seconds(), 2),
        # About 1 where nobody else uses the shared cache; several times that where many do.
        "cache_ms": round(1e3 * _cache_seconds(pause=0.0), 2),
        "cache_ms_rested": round(1e3 * _cache_seconds(pause=0.003), 2),
        **{name: version(name) for name in _LIBRARIES},
    }


def _fsync_seconds() -> float:
    """Return the median time in which the disk takes a block for good."""
    seconds = []
    with TemporaryFile(dir=RESULTS) as file:
        for _ in range(50):
            started = time.perf_counter()
            os.write(file.fileno(), bytes(4096))
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - started)
    return median(seconds)


def _cache_seconds(pause: float) -> float:
    """Return the median time to add up 6 MB of scattered doubles that were added up just before.

    Args:
        pause: seconds to rest between, in which others on the host may take the cache.
    """
    values = [float(number) for number in range(200_000)]
    random.Random(0).shuffle(values)
    seconds = []
    for _ in range(9):
        sum(values)
        time.sleep(pause)
        started = time.perf_counter()
        sum(values)
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used so far, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def busy_seconds() -> float:
    """Return the processor time that everything on this machine has used so far."""
    fields = Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    user, nice, system, _idle, _waiting, *interrupts_and_stolen = map(int, fields)
    return (user + nice + system + sum(interrupts_and_stolen)) / _TICKS


def resident_bytes(pid: int) -> int:
    """Return how much memory a process keeps resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def pin(pid: int, core: int | None) -> None:
    """Keep every thread of a process to one core, if it is given."""
    for thread in Path(f"/proc/{pid}/task").iterdir() if core is not None else ():
        os.sched_setaffinity(int(thread.name), {core})


@contextmanager
def baseline() -> Iterator[tuple[int, int]]:
    """Run the baseline in a process of its own; yields its port and process id."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "uvicorn", "tests.bench.baseline_app:app"),
        *("--port", str(port), "--loop", "uvloop", "--http", "httptools"),
        *("--no-access-log", "--log-level", "warning"),
    ]
    with launched(command, f"http://127.0.0.1:{port}/-/ready") as pid:
        yield port, pid


@contextmanager
def launched(command: Sequence[str], ready: str) -> Iterator[int]:
    """Run a server, wait until a URL of it answers, and yield its process id."""
    with subprocess.Popen(command) as process:
        try:
            _wait_until_ready(ready, process)
            yield process.pid
        finally:
            process.terminate()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + STARTING
    while time.monotonic() < deadline and process.poll() is None:
        try:
            httpx.get(url).raise_for_status()
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"{url} does not answer: exit code {process.poll()}")
