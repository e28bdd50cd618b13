"""Ctrl-C ends a command without a traceback, whenever it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankfold_service.cli import entry
from support.unruly import Unruly, hang

# As the script that an installation makes, and telling on standard error what is imported.
START = "import sys; from rankfold_service.cli.entry import main; sys.exit(main())"
COMMAND = [sys.executable, "-X", "importtime", "-c", START]
PATIENCE = 60


@pytest.fixture
def url() -> Iterator[str]:
    """Yield the address of something that answers nothing."""
    with Unruly(hang) as server:
        yield server.url


def interrupted(arguments: list[str], module: str, *before: str) -> tuple[int, str]:
    """Send Ctrl-C once a module is imported; return the exit code and what was said after."""
    command = [*before, *COMMAND, *arguments]
    environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}  # for its own programs
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.rstrip().endswith(f" {module}"):
                break
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said = [line for line in process.stderr if not line.startswith("import time:")]
        return process.wait(PATIENCE), "".join(said)


@pytest.mark.parametrize(
    "module", ["rankfold_service.cli.children", "torch.types", "torch.storage"]
)
def test_interrupt_of_a_program_of_ours_says_nothing(tmp_path: Path, module: str) -> None:
    """What delivers a spool needs long to be imported, in a process of its own."""
    assert interrupted(["spool", "flush", str(tmp_path)], module) == (130, "")


@pytest.mark.parametrize(
    "module",
    [
        "argparse",
        "rankfold_service.cli.text",
        "pydantic_core",
        "pydantic",
        "httpcore",
        "httpx",
        "rankfold_service.cli.api",
        "rankfold_service.cli.views",
    ],
)
def test_interrupt_during_imports_says_nothing(url: str, module: str) -> None:
    """It ends there and then, with what shells give to a command that Ctrl-C ended."""
    assert interrupted(["runs", "--url", url], module) == (130, "")


def test_interrupt_that_is_ignored_stays_so() -> None:
    """A job that its script protects from Ctrl-C goes on to its end."""
    command = ["runs", "--url", "http://127.0.0.1:1"]
    protected = ("sh", "-c", 'trap \'\' INT; exec "$0" "$@"')
    code, said = interrupted(command, "rankfold_service.cli.views", *protected)
    assert (code, said.startswith("rankfold runs: no aggregator answers")) == (4, True)


def test_interrupt_before_all_else_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even what comes before anything is imported is met."""

    class Interrupted:
        def __getattr__(self, _: str) -> None:
            raise KeyboardInterrupt

    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setitem(sys.modules, "rankfold_service.cli.main", Interrupted())
    try:
        assert entry.main() == 130
    finally:
        signal.signal(signal.SIGINT, handler)
