"""The main job: what `rankfold demo` says equals a recount of the tensors that it compared."""

from __future__ import annotations

import json
import math
import re
import signal
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from rankfold_service.cli.children import Child, ChildFailed

SERIES = "training/rollout_logprobs"
DEMO = [sys.executable, "-m", "rankfold_service.cli.main", "demo"]
DUMP_NAME = re.compile(r"rank(\d+)-iteration(\d+)-microbatch(\d+)\.pt")
ITERATIONS = 2
TIMEOUT = 180

Values = list[tuple[float, float]]


@dataclass(frozen=True)
class Recount:
    """What a plain loop over bit patterns finds in the values under the mask."""

    valid: int
    count: int
    max: float
    sum: float
    ulp_max: int


def bits(value: float) -> int:
    """Return the bit pattern of a float32, as an unsigned integer."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def step(value: float) -> int:
    """Return which float32 this is, counted from zero."""
    magnitude = bits(value) & 0x7FFFFFFF
    return -magnitude if bits(value) >> 31 else magnitude


def distance(a: float, b: float) -> float:
    """Return |a - b| rounded to float32."""
    return float(struct.unpack("<f", struct.pack("<f", abs(a - b)))[0])


def recount(pairs: Values) -> Recount:
    """Count, without the client's comparison, how the pairs differ."""
    distances = [distance(a, b) for a, b in pairs]
    return Recount(
        valid=len(pairs),
        count=sum(bits(a) != bits(b) and not a == b == 0 for a, b in pairs),
        max=max(distances),
        sum=math.fsum(distances),
        ulp_max=max(abs(step(a) - step(b)) for a, b in pairs),
    )


def load(folder: Path) -> dict[tuple[int, int], Values]:
    """Return the pairs under the mask per (rank, iteration)."""
    found: dict[tuple[int, int], Values] = defaultdict(list)
    for path in sorted(folder.iterdir()):
        match = DUMP_NAME.fullmatch(path.name)
        assert match is not None, path.name
        dumped = torch.load(path, weights_only=True)
        assert dumped["a"].dtype == dumped["b"].dtype == torch.float32
        flat = (dumped[name].flatten().tolist() for name in ("a", "b", "mask"))
        pairs = [(a, b) for a, b, valid in zip(*flat, strict=True) if valid]
        found[int(match[1]), int(match[2])] += pairs
    return found


def demo(folder: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Run the demo; return what it printed and what it wrote as JSON."""
    written = folder / "demo.json"
    done = subprocess.run(
        [*DEMO, "--iterations", str(ITERATIONS), "--json", str(written), *options],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done, json.loads(written.read_text())


def assert_equal(keys: dict[str, Any], found: Recount) -> None:
    """Check the aggregator's values of one selection against the recount of the same."""
    assert keys[f"{SERIES}_valid_count"] == found.valid
    assert keys[f"{SERIES}_mismatch_count"] == found.count
    assert keys[f"{SERIES}_diff_max"] == found.max
    assert keys[f"{SERIES}_ulp_max"] == found.ulp_max
    assert keys[f"{SERIES}_nonfinite_count"] == 0
    assert math.isclose(keys[f"{SERIES}_diff_mean"], found.sum / found.valid, rel_tol=1e-12)


def flatten(parts: Iterable[Values]) -> Values:
    """Return all pairs in one list."""
    return [pair for part in parts for pair in part]


def test_demo_equals_an_independent_recount(tmp_path: Path) -> None:
    """Counts and maxima are exactly those of the dumped tensors, per rank, iteration and run."""
    done, found = demo(tmp_path, "--dump", str(tmp_path / "dump"))
    dumped = load(tmp_path / "dump")
    assert sorted(dumped) == [(rank, i) for rank in range(2) for i in range(ITERATIONS)]
    for (rank, iteration), pairs in dumped.items():
        item = found["ranks"][str(rank)][iteration]
        assert item["iteration"] == iteration
        assert item["complete"]
        assert_equal(item["keys"], recount(pairs))
    whole = recount(flatten(dumped.values()))
    totals = found["totals"]["keys"]
    assert_equal({key: total["value"] for key, total in totals.items()}, whole)
    assert math.isclose(totals[f"{SERIES}_diff_mean"]["sum"], whole.sum, rel_tol=1e-12)
    assert 0 < whole.count < whole.valid
    assert found["gate"]["gate"] == "fail"
    assert found["gate"]["series"][SERIES]["mismatch_count"] == whole.count
    assert found["gate"]["worst"][0]["sample"].startswith("iteration ")
    assert f"{whole.count:,}" in done.stdout


def test_demo_exact_passes_the_gate_with_zeros(tmp_path: Path) -> None:
    """Scored by the same kernels, not one bit of any log-prob differs."""
    done, found = demo(tmp_path, "--exact", "--dump", str(tmp_path / "dump"))
    pairs = flatten(load(tmp_path / "dump").values())
    assert [bits(a) for a, _ in pairs] == [bits(b) for _, b in pairs]
    values = {key: total["value"] for key, total in found["totals"]["keys"].items()}
    assert_equal(values, Recount(valid=len(pairs), count=0, max=0.0, sum=0.0, ulp_max=0))
    assert found["gate"]["gate"] == "pass"
    assert "\npass  demo/exact (finished)" in done.stdout
    _, _, after = done.stdout.partition("\nThe aggregator ends now, and its store is gone: ")
    assert "rankfold demo --keep" in after
    assert "http://" not in after  # there is nobody to answer


def test_demo_keep_answers_until_interrupted(tmp_path: Path) -> None:
    """With --keep the aggregator answers after the report, and goes away on Ctrl-C."""
    options = ["--keep", "--iterations", "1", "--dtype", "bfloat16"]
    with subprocess.Popen([*DEMO, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("metrics"):
                break
        assert any(line.startswith("The aggregator stays up") for line in lines[:-1])
        url = next(line.split()[1] for line in lines if line.startswith("metrics"))
        metrics = httpx.get(url, trust_env=False)
        assert "rankfold_gate{" in metrics.text
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)


@pytest.mark.parametrize(
    ("option", "name", "reason"),
    [("--dump", ".", "is not empty"), ("--dump", "old.pt", "cannot"), ("--json", "no/x", "cannot")],
)
def test_demo_refuses_where_it_cannot_write(
    tmp_path: Path, option: str, name: str, reason: str
) -> None:
    """Tensors of another run, or a path that is none: exit 2 before anything is started."""
    (tmp_path / "old.pt").touch()
    command = [*DEMO, option, str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


def test_child_failure_shows_its_last_output(tmp_path: Path) -> None:
    """A process that fails is reported with its code and what it said last."""
    with Child("the tool", ["json.tool", str(tmp_path / "absent")], tmp_path) as child:
        code = child.process.wait(30)
        with pytest.raises(ChildFailed) as raised:
            child.running()
    first, *output = str(raised.value).splitlines()
    assert first == f"the tool ended with code {code}; its last output:"
    assert any("absent" in line for line in output)


def test_child_ends_with_its_block(tmp_path: Path) -> None:
    """When the block is left, the process is gone."""
    with Child("the server", ["http.server", "0"], tmp_path) as child:
        assert child.running()
    assert child.process.returncode == -signal.SIGTERM
