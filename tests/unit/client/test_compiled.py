"""The build of the compiled form: beside training, once, and never needed."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rankfold_client as rf
from rankfold_client import compiled

COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")


@needs_compiler
def test_warm_up_says_whether_comparisons_are_compiled() -> None:
    """Once it is true there is a kernel for both compared dtypes."""
    assert rf.warm_up()
    assert compiled.kernel(torch.float32) is not None
    assert compiled.kernel(torch.float64) is not None


@needs_compiler
def test_the_build_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was built is loaded; the files are gone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert len(compiled.build(COMPILER or "")) == 2
    assert list(tmp_path.iterdir()) == []


def test_without_a_compiler_comparisons_stay_eager(caplog: pytest.LogCaptureFixture) -> None:
    """It is told once, is no error and does not wait."""
    preparation = compiled.Preparation(None)
    with caplog.at_level(logging.INFO, "rankfold"):
        for _ in range(2):
            preparation.start()
            assert not preparation.wait(60.0)
    assert [r.getMessage() for r in caplog.records] == [
        "comparisons stay eager: there is no C compiler"
    ]


def broken_compiler(folder: Path, script: str) -> str:
    """Return a program in the place of a compiler."""
    path = folder / "cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'kernel.c:1: no fenv.h' >&2; exit 1", "exit status 1.: kernel.c:1: no fenv.h"),
        ("exit 0", "cannot open shared object file"),
        ('for a; do case $a in *.so) echo nonsense > "$a";; esac; done', "invalid ELF header|too"),
    ],
)
def test_a_failed_build_is_told_once_and_is_no_error(
    script: str, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a compiler does, comparisons go on eagerly."""
    preparation = compiled.Preparation(broken_compiler(tmp_path, script))
    with caplog.at_level(logging.INFO, "rankfold"):
        preparation.start()
        assert not preparation.wait(60.0)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert re.search(words, record.getMessage())


def in_a_process(code: str, **env: str) -> str:
    """Return what a fresh Python prints."""
    command = [sys.executable, "-W", "error", "-c", code]
    told = subprocess.run(
        command, env=os.environ | env, capture_output=True, text=True, check=True, timeout=120
    )
    return told.stdout.strip()


def test_the_environment_turns_it_off() -> None:
    """RANKFOLD_COMPILE=0 keeps comparisons eager without a word."""
    code = "import rankfold_client as rf; print(rf.warm_up())"
    assert in_a_process(code, RANKFOLD_COMPILE="0") == "False"


@needs_compiler
def test_a_fork_during_the_build_builds_its_own() -> None:
    """A child of a fork waits for no thread of its parent."""
    code = """
import os, sys
import rankfold_client as rf
from rankfold_client import compiled
compiled.prepare()
child = os.fork()
if child == 0:
    os._exit(0 if rf.warm_up() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), rf.warm_up())
"""
    assert in_a_process(code) == "0 True"
