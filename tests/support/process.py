"""Others' servers as processes: started, waited for and ended; some never as root."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.programs import open_to_all

PATIENCE = 60.0


def _unprivileged() -> pwd.struct_passwd | None:
    """Return whom root runs a database as, which refuses to be run by root; None for others."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


USER = _unprivileged()


def own_folder(prefix: str) -> Path:
    """Make a folder that the processes own; pytest's own are closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix=f"rankfold-{prefix}-"))
    if USER is not None:
        os.chown(folder, USER.pw_uid, USER.pw_gid)
    return folder


def give(path: Path, text: str, mode: int = 0o600) -> Path:
    """Write a file that only the processes may read."""
    path.write_text(text)
    path.chmod(mode)
    if USER is not None:
        os.chown(path, USER.pw_uid, USER.pw_gid)
    return path


def _how(command: Sequence[str | Path], folder: Path, within: Sequence[str] = ()) -> dict[str, Any]:
    """Return how a program is run: where, and as whom.

    Args:
        command: the program and its arguments.
        folder: where it is.
        within: a command of root's that runs the program's.
    """
    program, *arguments = map(str, command)
    how: dict[str, Any] = {"cwd": folder}
    if USER is not None:
        program = open_to_all(program)
        ids = {"user": USER.pw_uid, "group": USER.pw_gid}
        if within:
            lower = (f"--reuid={ids['user']}", f"--regid={ids['group']}", "--clear-groups")
            within = (*within, "setpriv", *lower)
        else:
            how |= {**ids, "extra_groups": []}
    return how | {"args": [*within, program, *arguments]}


def run(command: Sequence[str | Path], folder: Path) -> None:
    """Run a program to its end, as the user that the servers run as."""
    done = subprocess.run(capture_output=True, text=True, check=False, **_how(command, folder))
    assert done.returncode == 0, done.stdout + done.stderr


class Program(ABC):
    """A program that serves until it is ended; it may be started again where it was.

    Args:
        folder: what it keeps and logs lies there.
        name: of its log.
    """

    # What ends it without ado.
    ABRUPT = signal.SIGKILL

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """The program and its arguments."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it does what it is for."""

    @property
    def how(self) -> dict[str, Any]:
        """With which arguments of `subprocess.Popen` it is run."""
        return {"args": self.command, "cwd": self.folder}

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text(errors="replace")

    def launch(self) -> None:
        """Start it, without waiting for anything."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(stdout=log, stderr=log, **self.how)

    def start(self) -> Self:
        """Start it and wait until it answers."""
        self.launch()
        self.wait(self.answers)
        return self

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; fail with the log if it ends before."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process is not None
            assert self.process.poll() is None, self.log[-4000:]
            assert time.monotonic() < deadline, self.log[-4000:]
            time.sleep(0.02)

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal that ends it; return the exit code once it has ended."""
        assert self.process is not None
        self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        self.process = None
        return code

    def close(self) -> None:
        """End it, if it runs."""
        if self.process is not None:
            self.end(self.ABRUPT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Process(Program):
    """A program of others in a folder of its own, run by root as another user.

    Args:
        name: of its folder and its log.
    """

    def __init__(self, name: str) -> None:
        super().__init__(own_folder(name), name)
        # A command of root's that runs its own, such as one that shows it another disk.
        self.within: Sequence[str] = ()

    @property
    def how(self) -> dict[str, Any]:
        """See `Program.how`."""
        return _how(self.command, self.folder, self.within)

    def close(self) -> None:
        """End it, if it runs, and remove its folder."""
        super().close()
        shutil.rmtree(self.folder)
