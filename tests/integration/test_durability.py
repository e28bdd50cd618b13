"""Restarts, kills and shutdowns of a real server on a real file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.server import Server

SERIES = "training/rollout_logprobs"


def clean(iteration: int, microbatch: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a partial without a mismatch."""
    row = {"series": SERIES, "iteration": iteration, "microbatch": microbatch}
    return {**row, "count": 0, "max": 0.0, "sum": 0.0, "valid": 8, **fields}


def fill(server: Server) -> None:
    """Report a run of two ranks, with scalars, a conflict and a finish."""
    for rank in range(2):
        for iteration in range(5):
            answer = server.report(
                run="run",
                rank=rank,
                world_size=2,
                partials=[clean(iteration, count=1, max=1e-9, sum=1 / 3 + rank)],
                scalars=[
                    {
                        "key": "loss",
                        "iteration": iteration,
                        "microbatch": 0,
                        "value": 0.1,
                        "rule": "mean",
                    }
                ],
                commits=[{"iteration": iteration, "microbatches": 1}],
            )
            assert answer.status_code == 200
    assert server.report(run="run", rank=0, partials=[clean(0, valid=9)]).json()["conflicts"] == 1
    assert server.client.post(
        "/api/v1/projects/default/runs/run/finish", json={"attempt": 0}
    ).json() == {"project": "default", "run": "run", "attempt": 0, "finished": True}


def everything(server: Server) -> list[dict[str, Any]]:
    """Return all that the API says about the run."""
    kinds = ("", "totals", "iterations", "ranks", "worst", "gate")
    return [server.get("run", kind) for kind in kinds]


def test_restart_changes_no_answer(durable: Server) -> None:
    """After a clean stop and after a kill every answer is what it was."""
    fill(durable)
    before = everything(durable)
    assert durable.stop() == 0
    durable.start()
    assert everything(durable) == before
    durable.kill()
    durable.start()
    assert everything(durable) == before
    assert durable.report(
        run="run", rank=1, partials=[clean(3, count=1, max=1e-9, sum=4 / 3)]
    ).json() == {
        "accepted": 0,
        "duplicates": 1,
        "conflicts": 0,
    }


def test_killed_server_has_every_report_that_it_acknowledged(durable: Server) -> None:
    """A kill under load loses no acknowledged report, and resending all counts none twice."""
    acknowledged: list[int] = []

    def send() -> None:
        with httpx.Client(base_url=durable.url) as client:
            for iteration in range(10_000):
                body = {"run": "run", "rank": 0, "partials": [clean(iteration)]}
                try:
                    client.post("/api/v1/partials", json=body).raise_for_status()
                except httpx.TransportError:
                    return
                acknowledged.append(iteration)

    sender = threading.Thread(target=send)
    sender.start()
    while len(acknowledged) < 100:
        assert sender.is_alive()
    durable.kill()
    sender.join()
    durable.start()
    known = durable.get("run", "totals")["keys"][f"{SERIES}_valid_count"]["value"] // 8
    assert known in (len(acknowledged), len(acknowledged) + 1)
    for iteration in range(len(acknowledged) + 1):
        assert durable.report(run="run", rank=0, partials=[clean(iteration)]).status_code == 200
    key = durable.get("run", "totals")["keys"][f"{SERIES}_valid_count"]
    assert key["value"] == 8 * (len(acknowledged) + 1)


def test_stopped_server_answers_or_refuses_what_it_received(durable: Server) -> None:
    """SIGTERM under load: every 200 is on disk, nothing else is half-done, the exit code is 0."""
    outcomes: dict[int, int] = {}
    stopping = threading.Event()

    def send(rank: int) -> None:
        with httpx.Client(base_url=durable.url) as client:
            for iteration in range(10_000):
                body = {"run": "run", "rank": rank, "partials": [clean(iteration)]}
                try:
                    code = client.post("/api/v1/partials", json=body).status_code
                except httpx.TransportError:
                    return
                outcomes[rank] = outcomes.get(rank, 0) + (code == 200)
                if sum(outcomes.values()) > 200:
                    stopping.set()

    senders = [threading.Thread(target=send, args=(rank,)) for rank in range(8)]
    for sender in senders:
        sender.start()
    assert stopping.wait(30)
    assert durable.stop() == 0
    for sender in senders:
        sender.join()
    assert not Path(durable.store.removeprefix("sqlite:///") + "-wal").exists()
    durable.start()
    ranks = durable.get("run", "ranks", limit=100)["items"]
    kept = {r["rank"]: r["keys"][f"{SERIES}_valid_count"] // 8 for r in ranks}
    assert all(kept[rank] - outcomes[rank] in (0, 1) for rank in outcomes)


def test_second_server_on_one_file_is_refused(durable: Server) -> None:
    """The second one exits with 2 and says what to do; the first goes on."""
    second = subprocess.run(
        [
            *(sys.executable, "-m", "rankfold_service.cli.main", "serve"),
            *("--listen", "127.0.0.1:0", "--store", durable.store),
        ],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert second.returncode == 2
    assert "in use by another process" in second.stderr
    assert "Traceback" not in second.stderr
    assert durable.report(run="run", rank=0).status_code == 200


def test_damaged_file_is_refused_at_start(durable: Server) -> None:
    """A start over a damaged file exits with 2 and leaves the file as it is."""
    fill(durable)
    assert durable.stop() == 0
    path = Path(durable.store.removeprefix("sqlite:///"))
    data = bytearray(path.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    path.write_bytes(data)
    refused = subprocess.run(
        [
            *(sys.executable, "-m", "rankfold_service.cli.main", "serve"),
            *("--listen", "127.0.0.1:0", "--store", durable.store),
        ],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert refused.returncode == 2
    assert "is damaged" in refused.stderr
    assert path.read_bytes() == bytes(data)


def test_backup_restores_a_damaged_store(durable: Server, tmp_path: Path) -> None:
    """The way that the README describes: copy in use, damage, move away, copy back, start."""
    fill(durable)
    before = everything(durable)
    path, copy = Path(durable.store.removeprefix("sqlite:///")), tmp_path / "backup.db"
    rankfold = (sys.executable, "-m", "rankfold_service.cli.main")
    command = [*rankfold, "backup", "--store", durable.store, "--to", str(copy)]
    subprocess.run(command, check=True, capture_output=True, timeout=20)
    verify = [*rankfold, "verify", "--store", f"sqlite:///{copy}"]
    subprocess.run(verify, check=True, capture_output=True, timeout=20)
    durable.kill()
    path.write_bytes(b"damage" * 1000)
    for damaged in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        if damaged.exists():
            damaged.rename(damaged.with_suffix(".away"))
    shutil.copy(copy, path)
    durable.start()
    assert everything(durable) == before


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_file_that_is_cut_off_stops_reports(durable: Server, suffix: str) -> None:
    """Nothing more is acknowledged into a damaged store, and readiness tells a balancer so."""
    path = Path(durable.store.removeprefix("sqlite:///"))
    for number in range(20):
        assert durable.report(run=f"run-{number}", rank=0).status_code == 200
    os.truncate(f"{path}{suffix}", 0)
    answer = durable.report(run="late", rank=0)
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert f"{path.name}{suffix} was cut off under the aggregator" in answer.json()["detail"]
    assert durable.report(run="later", rank=0).status_code == 503
    assert durable.client.get("/-/ready").status_code == 503
    assert durable.stop() == 4
