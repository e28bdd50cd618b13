"""`rankfold compare` as users run it, held against what a real aggregator says of the tensors."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import rankfold_client as rf
from rankfold_service.cli import compare as module
from rankfold_service.cli.main import main
from support.server import Server

SERIES = "training/rollout_logprobs"
CLOCKED = ("project", "run")  # all that may differ between the two


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """An aggregator that trainers report to."""
    with Server("memory://") as server:
        yield server


def dump(path: Path, value: Any) -> str:
    """Write a dump and return its path."""
    torch.save(value, path)
    return str(path)


def twice(path: str | Path) -> tuple[str, str]:
    """Return a file and another of the same content."""
    same = f"{path}.same{Path(path).suffix}"
    os.link(path, same)
    return str(path), same


def log_probs(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probs, the same with some that differ or are not finite, and a mask."""
    generator = torch.Generator().manual_seed(seed)
    a = -5 * torch.rand(40, 300, generator=generator)
    b = a.clone()
    b[::7] = b[::7].bfloat16().float()
    b[3, 3], b[4, 4] = float("nan"), float("-inf")
    return a, b, torch.rand(40, 300, generator=generator) < 0.7


def answered(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run a command and return its exit code and its answer."""
    code = main([*arguments, "--json"])
    return code, json.loads(capfd.readouterr().out)


@pytest.mark.parametrize(
    "thresholds", [[], ["--max-mismatch-count", "100000"], ["--max-diff-max", "1"]]
)
@pytest.mark.parametrize("clean", [True, False])
def test_compare_says_what_the_gate_says_of_a_trainers_reports(
    server: Server,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    clean: bool,
    thresholds: list[str],
) -> None:
    """The whole answer is equal, over iterations and microbatches, to the last digit."""
    name = f"run-{clean}-{len(thresholds)}-{thresholds[:1]}"
    batches = [[log_probs(10 * i + m) for m in range(3)] for i in range(2)]
    if clean:
        batches = [[(a, a.clone(), mask) for a, _, mask in each] for each in batches]
    with rf.Reporter(name, url=server.url, rank=0, world_size=1) as reporter:
        for iteration in batches:
            for a, b, mask in iteration:
                reporter.compare(SERIES, a, b, mask=mask)
            reporter.end_iteration()
        assert reporter.close() == 0
    left = [[{SERIES: a, "mask": mask} for a, _, mask in each] for each in batches]
    right = {SERIES: [[b for _, b, _ in each] for each in batches]}
    files = dump(tmp_path / "a.pt", left), dump(tmp_path / "b.pt", right)
    offline = answered(capfd, "compare", *files, *thresholds)
    online = answered(capfd, "gate", name, "--url", server.url, *thresholds)
    for _, answer in (offline, online):
        for key in CLOCKED:
            del answer[key]
        for figures in answer["series"].values():
            # Compiled and eager comparisons may add in another order.
            figures["diff_mean"] = pytest.approx(figures["diff_mean"], rel=1e-12)
    assert offline == online
    assert offline[0] == (0 if clean or "100000" in thresholds else 1)


def test_compare_ends_with_the_codes_of_the_gate(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """0 equal, 1 one unit apart unless that is allowed, 3 incomplete or nothing compared."""
    a, _, mask = log_probs()
    b = a.clone()
    b[2, 5] = torch.nextafter(a[2, 5], torch.tensor(0.0))
    mask[2, 5] = True
    left, right = dump(tmp_path / "a.pt", a), dump(tmp_path / "b.pt", b)
    assert main(["compare", *twice(left)]) == 0
    assert capfd.readouterr().out.startswith("pass  a.pt against a.pt.same.pt\n")
    assert main(["compare", left, right]) == 1
    shown = capfd.readouterr().out
    assert "tensor: 1 of 12000 positions mismatch" in shown
    assert shown.splitlines()[-1].split()[-5:-3] == ["2,", "5"]
    assert shown.splitlines()[-1].split()[-1] == "1"
    assert main(["compare", left, right, "--max-mismatch-count", "1"]) == 0
    assert (
        main(["compare", left, right, "--max-mismatch-count", "1", "--max-diff-max", "1e-9"]) == 1
    )
    nowhere = dump(tmp_path / "mask.pt", torch.zeros_like(mask))
    assert main(["compare", left, right, "--mask-file", nowhere]) == 3
    assert "tensor: no position was under the mask" in capfd.readouterr().out
    two, one = dump(tmp_path / "two.pt", {"x": a, "y": a}), dump(tmp_path / "one.pt", {"x": a})
    assert main(["compare", two, one]) == 3
    shown = capfd.readouterr()
    assert "1 iteration without a series: 0\n  y: nothing was reported" in shown.out
    assert f"only in {two}: 'y'" in shown.err
    assert main(["compare", dump(tmp_path / "l.pt", [a, a]), dump(tmp_path / "m.pt", [a])]) == 3
    shown = capfd.readouterr().out
    assert "missing     iteration 0: microbatch 1 of tensor\n" in f"{shown}\n"
    # Two files have none of these.
    assert not [word for word in ("attempt", "ranks", "finished", "dropped") if word in shown]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--series", "x", "--a-key", "x"], "--series names tensors of both files"),
        (["--no-mask", "--mask", "m"], "--no-mask contradicts --mask and --mask-file"),
        (["--max-diff-max", "nan"], "must be a number, at least 0"),
        (["--mask=--no-mask"], "no mask '--no-mask'"),
        (["--mask-file", "gone.npz"], "gone.npz: No such file or directory"),
    ],
)
def test_compare_refuses_wrong_usage(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], complaint: str
) -> None:
    """Never with a code that a verdict has."""
    path = dump(tmp_path / "a.pt", {"x": torch.zeros(2)})
    assert main(["compare", path, path, *options]) == 2
    said = capfd.readouterr()
    assert (complaint in said.err, said.out) == (True, "")


def test_compare_says_what_to_install(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no torch, as beside an aggregator; and only what these files need."""
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)
    assert main(["compare", "a.pt", "b.npz"]) == 2
    assert capfd.readouterr().err == (
        "rankfold compare: needs torch and numpy: install the extra 'compare', as the README says; "
        "where the trainer runs, torch is there\n"
    )


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        (
            f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})",
            "SIGKILL: was there too little",
        ),
        (f"import os; os.kill(os.getpid(), {int(signal.SIGBUS)})", "SIGBUS: a file became shorter"),
        ("raise SystemExit(1)", "ended with code 1\n"),
    ],
)
def test_a_comparison_that_dies_is_no_verdict(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    complaint: str,
) -> None:
    """However it dies, the code is not the one of a mismatch."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{script}"\n')
    python.chmod(0o755)
    monkeypatch.setattr(module.sys, "executable", str(python))
    assert main(["compare", "a.pt", "b.pt"]) == 2
    assert complaint in capfd.readouterr().err


def test_the_dumps_of_the_demo_can_be_compared(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Both sides and the mask in one file, by the names that the demo gives them."""
    a, b, mask = log_probs()
    path = dump(tmp_path / "rank0-iteration0-microbatch0.pt", {"a": a, "b": b, "mask": mask})
    assert main(["compare", path, path, "--a-key", "a", "--b-key", "b"]) == 1
    want = rf.compare(a, b, mask=mask)
    assert f"a: {want.count} of {want.valid} positions mismatch" in capfd.readouterr().out


def test_the_worst_tokens_show_their_ids(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the option that is called as the client's argument is."""
    monkeypatch.setenv("COLUMNS", "200")  # where there is no room, they are left out
    a, b, mask = log_probs()
    ids = torch.arange(a.numel()).view(a.shape)
    path = dump(tmp_path / "step.pt", {"a": a, "b": b, "mask": mask, "input_ids": ids})
    keys = ("compare", path, path, "--a-key", "a", "--b-key", "b", "--token-ids", "input_ids")
    want = rf.compare(a, b, mask=mask, token_ids=ids).worst
    assert want is not None
    assert main([*keys]) == 1
    shown = capfd.readouterr().out.splitlines()
    assert (shown[-2].split()[-1], shown[-1].split()[-1]) == ("token_id", str(want.token_id))


@pytest.mark.parametrize(("full", "code"), [("2>/dev/full", 0), (">/dev/full", 2)])
def test_a_full_disk_makes_no_mismatch(tmp_path: Path, full: str, code: int) -> None:
    """What is said beside the verdict may be lost; a verdict that is lost ends with 2."""
    files = " ".join(twice(dump(tmp_path / "a.pt", {"x": torch.zeros(2), "mask": torch.ones(2)})))
    command = f"{sys.executable} -m rankfold_service.cli.main compare {files} {full}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith(b"pass") == (code == 0)


def test_an_empty_tensor_is_called_empty(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is not the mask that left nothing."""
    paths = twice(dump(tmp_path / "a.pt", {"x": torch.zeros(0, 5)}))
    assert main(["compare", *paths]) == 3
    assert "x: no position to compare, the tensors are empty" in capfd.readouterr().out


def test_a_large_array_needs_room_for_a_file(tmp_path: Path) -> None:
    """Where there is none, it is told how much is needed, and where."""
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros((5, 1 << 20), "f4"))
    done = subprocess.run(
        [sys.executable, "-m", "rankfold_service.cli.main", "compare", *twice(path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"rankfold compare: {path}: 'x.npy', 20971648 bytes, cannot be unpacked into {tmp_path}: "
        "File too large; let TMPDIR name a folder with that much room, or save .safetensors, "
        "which is compared where it is\n"
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.npz", "a.npz.same.npz"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("moment", ["importing", "comparing"])
def test_ctrl_c_at_a_terminal_ends_both_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Quietly and with 130, whatever the comparison is at; the terminal sends it to both."""
    header = b'{"x":{"dtype":"F32","shape":[2147483648],"data_offsets":[0,8589934592]}}'
    header += b" " * (-len(header) % 8)
    path, imports = tmp_path / "large.safetensors", tmp_path / "imports"
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + (1 << 33))  # of which the disk holds nothing
    (tmp_path / "sitecustomize.py").write_text(SLOW_IMPORT.format(str(imports)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process, terminal = pty.fork()
    if not process:
        command = ["-m", "rankfold_service.cli.main", "compare", *twice(path)]
        os.execv(sys.executable, [sys.executable, *command])  # noqa: S606
    os.set_blocking(terminal, False)
    shown = b""
    while not (imports.exists() if moment == "importing" else b"comparing" in shown):
        shown += read_some(terminal)
        assert os.waitpid(process, os.WNOHANG) == (0, 0), shown
    child = int(Path(f"/proc/{process}/task/{process}/children").read_text())
    if moment == "importing":  # the program can end by itself, should the command be slow
        os.kill(process, signal.SIGSTOP)
    os.write(terminal, b"\x03")
    while moment == "importing" and ") Z " not in Path(f"/proc/{child}/stat").read_text():
        shown += read_some(terminal)
    os.kill(process, signal.SIGCONT)
    ended, status = 0, 0
    while not ended:
        shown += read_some(terminal)
        ended, status = os.waitpid(process, os.WNOHANG)
    shown += read_some(terminal)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    assert not Path(f"/proc/{child}").exists()
    progress = b"\r\x1b[Kcomparing 1 of 1: x\r\x1b[K" if moment == "comparing" else b""
    assert shown.replace(b"^C", b"") == progress


SLOW_IMPORT = """
import pathlib, sys, time
class Slow:
    def find_spec(self, name, *_):
        if name == "torch.nn":
            pathlib.Path({!r}).touch()
            time.sleep(0.5)
sys.meta_path.insert(0, Slow())
"""


def read_some(terminal: int) -> bytes:
    """Return what a terminal shows more of after a moment."""
    time.sleep(0.001)
    try:
        return os.read(terminal, 10_000)
    except OSError:  # nothing more, or nobody there any more
        return b""


def test_a_terminal_is_left_clean(tmp_path: Path) -> None:
    """Progress goes to standard error and is taken off before the verdict."""
    paths = twice(dump(tmp_path / "a.pt", {"x": torch.zeros(2), "y": torch.zeros(2)}))
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "rankfold_service.cli.main", "compare", *paths]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, check=False)
    os.close(terminal)
    shown = os.read(controller, 10_000).decode()
    os.close(controller)
    assert (done.returncode, done.stdout[:4]) == (0, b"pass")
    assert "comparing 1 of 2: x" in shown
    assert shown.endswith("\r\x1b[K")


def test_a_comparison_does_not_need_standard_error(tmp_path: Path) -> None:
    """Where the caller closed it, what the comparison says beside the verdict goes nowhere."""
    a, b, mask = log_probs()
    files = [
        dump(tmp_path / f"{name}.pt", {"x": x, "mask": mask}) for name, x in (("a", a), ("b", b))
    ]
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"{sys.executable} -m rankfold_service.cli.main compare {' '.join(files)} 2>&-",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("fail  a.pt against b.pt\n")
