"""The compiled form of a comparison: one pass in C, built where there is a compiler, never needed.

The build takes under a second beside the training and serves every shape and dtype; until it is
there, or where it fails, the eager form of `kernels` gives the same statistics.
"""

from __future__ import annotations

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
_FLAGS = ("-O3", "-fno-strict-aliasing", "-fopenmp-simd", "-fPIC", "-shared")
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


def build(compiler: str) -> dict[torch.dtype, Kernel]:
    """Return the kernel for each compared dtype, built by this compiler for this machine.

    Nothing is left on the disk, so there is no cache that could be stale, foreign or read-only.

    Raises:
        OSError: what was built cannot be written or loaded.
        subprocess.SubprocessError: the compiler failed.
    """
    with tempfile.TemporaryDirectory(prefix="rankfold-") as folder:
        return {
            dtype: _load(_compile(compiler, f"-DWIDE={wide}", Path(folder, f"{wide}.so")))
            for wide, dtype in enumerate((torch.float32, torch.float64))
        }


def _compile(compiler: str, wide: str, target: Path) -> Path:
    command = [compiler, *_FLAGS, wide, str(_SOURCE), "-o", str(target), "-lm"]
    # A compiler that does not know its own machine builds for any of the kind.
    native = subprocess.run(  # noqa: S603
        [*command, "-march=native"], capture_output=True, timeout=SECONDS, check=False
    )
    if native.returncode:
        subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)  # noqa: S603
    return target


def _load(library: Path) -> Kernel:
    kernel = ctypes.CDLL(str(library)).gather_statistics
    array = (ctypes.c_void_p, ctypes.c_int)
    kernel.argtypes = (*array, *array, *array, ctypes.c_int64, ctypes.POINTER(Found))
    kernel.restype = None
    return kernel


class Preparation:
    """The build of one process, in a thread that dies with it.

    Args:
        compiler: its path; None where there is none.
    """

    def __init__(self, compiler: str | None) -> None:
        self.kernels: dict[torch.dtype, Kernel] = {}
        self._compiler = compiler
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankfold-build", daemon=True)
        self._starting = threading.Lock()

    def start(self) -> None:
        """Begin, unless that was done."""
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()

    def wait(self, timeout: float) -> bool:
        """Return whether the kernels are there, after waiting for them."""
        self._over.wait(timeout)
        return bool(self.kernels)

    @property
    def over(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return self._over.is_set()

    def _run(self) -> None:
        try:
            if self._compiler is None:
                log.info("comparisons stay eager: there is no C compiler")
            else:
                self.kernels = build(self._compiler)
        except (OSError, subprocess.SubprocessError) as error:
            log.warning("comparisons stay eager, which is slower: %s", _told(error))
        finally:
            self._over.set()


def _told(error: Exception) -> str:
    said = getattr(error, "stderr", None) or b""
    lines = said.decode(errors="replace").strip().splitlines()
    return f"{error}: {lines[0]}" if lines else str(error)


def _new() -> Preparation:
    wanted = os.environ.get("RANKFOLD_COMPILE", "").lower() not in _OFF
    names = (os.environ.get("CC"), "cc", "gcc", "clang")
    paths = (shutil.which(name) for name in names if name)
    return Preparation(next((path for path in paths if path), None) if wanted else None)


_preparation = _new()


def _after_fork() -> None:
    # The thread of an unfinished build is the parent's.
    global _preparation  # noqa: PLW0603
    if not _preparation.over:
        _preparation = _new()


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
    """
    prepare()
    return _preparation.wait(timeout)


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
