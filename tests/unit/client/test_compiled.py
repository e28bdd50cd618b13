"""The build of the compiled form: beside training, once, and never needed."""

from __future__ import annotations

import logging
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
    preparation = compiled.Preparation(COMPILER)
    preparation.start()
    assert preparation.wait(60.0)
    assert list(tmp_path.iterdir()) == []


def test_without_a_directory_for_it_comparisons_stay_eager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told, and raises nothing."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    preparation = compiled.Preparation(COMPILER)
    preparation.start()
    assert not preparation.wait(60.0)
    assert "No such file or directory" in caplog.text


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
        ("echo 'kernel.c:1: no fenv.h' >&2; exit 1", "failed: kernel.c:1: no fenv.h"),
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


@needs_compiler
def test_a_compiler_that_does_not_know_its_machine_builds_for_all(tmp_path: Path) -> None:
    """What it builds without knowing the processor compares as well."""
    script = f'case "$*" in *native*) exit 1;; esac; exec {COMPILER} "$@"'
    kernels = compiled.build(broken_compiler(tmp_path, script), tmp_path)
    a, b = torch.arange(3000.0), torch.arange(3000.0)
    b[2999] = 7.0
    found = compiled.statistics(kernels[torch.float32], a, b, None, wide=False)
    assert found is not None
    assert (found.valid, found.count, found.units >> 1074) == (3000, 1, 2992)


def test_the_environment_turns_it_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """RANKFOLD_COMPILE=0 keeps comparisons eager without a word."""
    monkeypatch.setenv("RANKFOLD_COMPILE", "0")
    monkeypatch.setattr(compiled, "_preparation", compiled.wanted())
    assert not rf.warm_up()
    assert caplog.records == []


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            """
import os, rankfold_client as rf
from rankfold_client import compiled
compiled.prepare()
child = os.fork()
if child == 0:
    os._exit(0 if rf.warm_up() else 1)
assert os.waitpid(child, 0)[1] == 0 and rf.warm_up()
""",
            marks=needs_compiler,
            id="a fork during the build builds its own",
        ),
        pytest.param(
            """
import sys, torch, rankfold_client as rf
assert rf.compare(torch.zeros(2), torch.ones(2)).count == 2
assert "torch._dynamo" not in sys.modules
""",
            id="the compiler of graphs, which takes longer to import than torch, is not",
        ),
    ],
)
def test_in_a_process_of_its_own(code: str) -> None:
    """What holds from the import on."""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
