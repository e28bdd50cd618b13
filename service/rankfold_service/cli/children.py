"""Processes that a command starts and ends: their output in files, their failures in words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

STOP_SECONDS = 10.0
GRACE_SECONDS = 1.0
TAIL_LINES = 30


def attended(command: list[str], **how: Any) -> tuple[int, bytes]:
    """Run a program of ours to its end; return its exit code and what it wrote to a pipe.

    Ctrl-C goes to both. The program starts with it blocked, until it can end quietly; what has not
    ended by then is ended from here.

    Args:
        command: the program and its arguments.
        how: more of what `subprocess.Popen` takes.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with subprocess.Popen(command, **how) as started:  # noqa: S603 - our own modules
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                written, _ = started.communicate()
            except KeyboardInterrupt:
                with suppress(subprocess.TimeoutExpired):
                    started.wait(GRACE_SECONDS)
                raise
            finally:
                started.kill()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return started.returncode, written


class ChildFailed(Exception):
    """A process did not do its work; the message ends with its last output."""


class Child:
    """A Python module as a process; it ends when the block does.

    Attributes:
        name: how messages call it, such as "the aggregator".
        log: the file with its output.
        process: the process itself.
    """

    def __init__(self, name: str, module: list[str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name.replace(' ', '-')}.log"
        # The user's settings are for other aggregators, and no proxy leads to this one.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RANKFOLD_")}
        environment |= {"OMP_NUM_THREADS": "1", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, "-m", *module],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C is ours to pass on, in order
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def running(self) -> bool:
        """Say whether it runs; raise ChildFailed where it ended with an error."""
        code = self.process.poll()
        if code:
            raise self.failure(f"ended with code {code}")
        return code is None

    def failure(self, reason: str) -> ChildFailed:
        """Return the error to raise, with the end of what the process wrote."""
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return ChildFailed("\n".join([f"{self.name} {reason}; its last output:", *lines]))
