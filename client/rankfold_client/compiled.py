"""The compiled form of a comparison: one pass in C, built where there is a compiler, never needed.

The build takes under a second beside the training and serves every shape and dtype; until it is
there, or where it fails, the eager form of `kernels` gives the same statistics.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from rankfold_client import bits
from rankfold_client.seconds import to_seconds
from rankfold_client.stats import Mismatch, Stats

# As `enum kind` of kernel.c numbers them; 0 is no array at all.
KINDS = {
    torch.bool: 1,
    torch.int8: 2,
    torch.uint8: 2,
    torch.int16: 3,
    torch.int32: 4,
    torch.int64: 5,
    torch.bfloat16: 6,
    torch.float16: 7,
    torch.float32: 8,
    torch.float64: 9,
}
SECONDS = 120.0

_SOURCE = Path(__file__).with_name("kernel.c")
_FLAGS = ("-O3", "-fno-strict-aliasing", "-fPIC", "-shared")
_OFF = ("0", "off", "no", "false")

log = logging.getLogger("rankfold")


class Found(ctypes.Structure):
    """What `gather_statistics` of kernel.c adds to; the same fields."""

    _fields_ = [
        ("valid", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("nonfinite", ctypes.c_int64),
        ("top", ctypes.c_uint64),
        ("ulp", ctypes.c_uint64),
        ("place", ctypes.c_int64),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
        ("wrong", ctypes.c_int64),
        ("sum", ctypes.c_double),
        ("squares", ctypes.c_double),
    ]


Kernel = Callable[..., None]


def build(compiler: str, folder: Path) -> dict[torch.dtype, Kernel]:
    """Return the kernel for each compared dtype, built by this compiler for this machine.

    Args:
        compiler: its path.
        folder: where to; nothing in it is needed afterwards.

    Raises:
        OSError: the compiler failed, or what it built cannot be loaded.
    """
    return {
        dtype: _load(_compile(compiler, f"-DWIDE={wide}", folder / f"{wide}.so"))
        for wide, dtype in enumerate((torch.float32, torch.float64))
    }


def _compile(compiler: str, wide: str, target: Path) -> Path:
    command = [compiler, *_FLAGS, wide, str(_SOURCE), "-o", str(target), "-lm"]
    said = target.with_suffix(".txt")
    # A compiler that does not know its own machine builds for any of the kind.
    for flags in (["-march=native"], []):
        # No pipe, of which a process forked meanwhile would keep an end open.
        with said.open("wb") as errors:
            ended = subprocess.run(  # noqa: S603
                command + flags,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                close_fds=False,
                timeout=SECONDS,
                check=False,
            )
        if ended.returncode == 0:
            return target
    lines = said.read_text(errors="replace").splitlines()
    raise OSError(f"{compiler} failed: {lines[0] if lines else 'it said nothing'}")


def _load(library: Path) -> Kernel:
    kernel = ctypes.CDLL(str(library)).gather_statistics
    array = (ctypes.c_void_p, ctypes.c_int)
    kernel.argtypes = (*array, *array, *array, ctypes.c_int64, ctypes.POINTER(Found))
    kernel.restype = None
    return kernel


class Preparation:
    """The build of one process, in a thread that dies with it.

    Args:
        compiler: its path; None where nothing is to be built.
        why: what is told of that.
    """

    def __init__(self, compiler: str | None, why: str = "there is no C compiler") -> None:
        self.kernels: dict[torch.dtype, Kernel] = {}
        self._compiler, self._why = compiler, why
        self._over = threading.Event()
        self._starting, self._begun = threading.Lock(), False

    def start(self) -> None:
        """Begin, unless that was done."""
        with self._starting:
            if self._begun:
                return
            self._begun = True
            # Here, as the thread must not hold a lock of tempfile's when the process forks.
            try:
                folder = tempfile.mkdtemp(prefix="rankfold-")
            except OSError as error:
                self._stay_eager(error)
                return
            # A process may end before the thread does.
            atexit.register(_remove, folder, os.getpid())
            run = threading.Thread(
                target=self._run, args=(folder,), name="rankfold-build", daemon=True
            )
            run.start()

    def wait(self, timeout: float) -> bool:
        """Return whether the kernels are there, after waiting for them."""
        self._over.wait(timeout)
        return bool(self.kernels)

    @property
    def over(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return self._over.is_set()

    def _run(self, folder: str) -> None:
        """Build; nothing stays on the disk, so no cache can be stale, foreign or read-only."""
        try:
            if self._compiler is not None:
                self.kernels = build(self._compiler, Path(folder))
            elif self._why:
                log.info("comparisons stay eager: %s", self._why)
        except (OSError, subprocess.TimeoutExpired) as error:
            # Without its folder the process is ending, and nobody waits for kernels any more.
            if Path(folder).exists():
                self._stay_eager(error)
        finally:
            _remove(folder, os.getpid())
            self._over.set()

    def _stay_eager(self, error: Exception) -> None:
        log.warning("comparisons stay eager, which is slower: %s", error)
        self._over.set()


def _remove(folder: str, process: int) -> None:
    """Remove the folder of a build, in the process that made it and in no child."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def wanted() -> Preparation:
    """Return the preparation that the environment asks for."""
    if os.environ.get("RANKFOLD_COMPILE", "").lower() in _OFF:
        return Preparation(None, "")
    names = (os.environ.get("CC"), "cc", "gcc", "clang")
    paths = (shutil.which(name) for name in names if name)
    return Preparation(next((path for path in paths if path), None))


_preparation = wanted()


def _after_fork() -> None:
    # The thread of an unfinished build is the parent's.
    global _preparation  # noqa: PLW0603
    if not _preparation.over:
        _preparation = wanted()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def prepare() -> None:
    """Begin to build the compiled form in the background, once a process; never raises."""
    _preparation.start()


def warm_up(timeout: float = 60.0) -> bool:
    """Build the compiled form of `compare` and wait for it, so that no step pays for it.

    Every shape and dtype is served by the one build. It needs a C compiler (`CC`, else cc, gcc
    or clang); without one, or with RANKFOLD_COMPILE=0, comparisons stay eager: the same results,
    several times slower.

    Args:
        timeout: seconds.

    Returns:
        Whether comparisons on the CPU are compiled from now on.

    Raises:
        ValueError: the timeout is NaN or negative.
    """
    seconds = to_seconds("timeout", timeout)
    prepare()
    return _preparation.wait(seconds)


def kernel(dtype: torch.dtype) -> Kernel | None:
    """Return what compares in this dtype; None while it is not built."""
    return _preparation.kernels.get(dtype)


def statistics(run: Kernel, a: Tensor, b: Tensor, mask: Tensor | None, wide: bool) -> Stats | None:
    """Return the statistics of contiguous tensors; None where the mask is not all 0 and 1.

    Args:
        run: the kernel of the compared dtype.
        a: on the CPU.
        b: of as many elements.
        mask: likewise; None counts every position.
        wide: whether the compared dtype is float64.
    """
    found = Found()
    masked = (None, 0) if mask is None else (mask.data_ptr(), KINDS[mask.dtype])
    run(a.data_ptr(), KINDS[a.dtype], b.data_ptr(), KINDS[b.dtype], *masked, a.numel(), found)
    if found.wrong:
        return None
    if not found.count:
        return Stats(valid=found.valid)
    top = found.top if wide else bits.double_bits(bits.double_of_single(found.top))
    return Stats(
        valid=found.valid,
        count=found.count,
        nonfinite=found.nonfinite,
        top=top,
        units=bits.units(bits.double_bits(found.sum)),
        sum_sq=found.squares,
        ulp=found.ulp,
        worst=Mismatch(found.place, found.a, found.b),
    )
