"""A real server whose store has a run that cannot be read: it serves all others, and says which."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from support.documents import blocks
from support.reports import SERIES, partial
from support.server import Server

RUNS = "/api/v1/projects/default/runs"


def path_of(server: Server) -> Path:
    """Return where a server's store is."""
    return Path(server.store.removeprefix("sqlite:///"))


def change(path: Path, statement: str) -> list[tuple[Any, ...]]:
    """Do to a store's file what a disk or a hand does; return what it answers."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement).fetchall()


def damage(server: Server) -> None:
    """Put another byte into the head of "my-run"."""
    change(
        path_of(server),
        "UPDATE run SET head = CAST(substr(head, 1, 20) || x'ff' || substr(head, 22) AS BLOB) "
        "WHERE name = 'my-run'",
    )


def rankfold(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    command = [sys.executable, "-m", "rankfold_service.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def send(iteration: int, run: str, *servers: Server) -> None:
    """Report an iteration of two ranks to each server."""
    for server in servers:
        for rank in range(2):
            row = partial(iteration=iteration, count=1, max=1e-9, sum=1 / (3 + iteration + rank))
            commits = [{"iteration": iteration, "microbatches": 1}]
            body = {"run": run, "rank": rank, "partials": [row], "commits": commits}
            answer = server.report(world_size=2, **body)
            assert answer.json() == {"accepted": 1, "duplicates": 0, "conflicts": 0}


def about(server: Server, run: str) -> list[dict[str, Any]]:
    """Return what the API says about a run, but for when it said it."""
    return [server.get(run, kind) for kind in ("totals", "iterations", "worst", "gate")]


def assert_confined(server: Server) -> None:
    """Check that "my-run" is refused and shown as damaged, and that "other" is served."""
    refusals = [
        server.report(run="my-run", rank=0),
        server.client.get(f"{RUNS}/my-run/totals"),
        server.client.post(f"{RUNS}/my-run/finish", json={"attempt": 0}),
    ]
    for refusal in refusals:
        problem = refusal.json()
        assert (refusal.status_code, problem["code"]) == (503, "store_damaged")
        assert problem["detail"].startswith(f"run 'my-run' in {path_of(server)} is damaged: ")
    page = server.client.get(RUNS).json()
    assert [item["run"] for item in page["items"]] == ["other"]
    assert page["damaged"] == [{"project": "default", "run": "my-run"}]
    shown = server.client.get("/metrics").text
    assert 'rankfold_conflicts{project="default",run="other"} 0' in shown
    assert 'run="my-run"' not in shown
    assert "\nrankfold_damaged_runs 1.0\n" in shown
    assert server.client.get("/-/ready").status_code == 200


def test_damaged_run_is_left_aside_until_it_is_deleted(durable: Server) -> None:
    """Through a stop and a kill; then it begins afresh, and a check finds nothing."""
    send(0, "my-run", durable)
    send(0, "other", durable)
    assert durable.stop() == 0
    damage(durable)
    verified = rankfold("verify", "--store", durable.store)
    assert (verified.returncode, verified.stdout.count("\n"), verified.stderr) == (1, 2, "")
    assert verified.stdout.startswith(f"run 'my-run' in {path_of(durable)} is damaged: ")
    for start in (1, 2):
        durable.start()
        send(start, "other", durable)
        assert_confined(durable)
        assert durable.log.read_text().count("a run is left aside: run 'my-run' in ") == start
        durable.kill()
    durable.start()
    assert durable.client.delete(f"{RUNS}/my-run").status_code == 200
    assert durable.client.delete(f"{RUNS}/my-run").status_code == 404
    assert "\nrankfold_damaged_runs 0.0\n" in durable.client.get("/metrics").text
    send(7, "my-run", durable)
    durable.kill()
    durable.start()
    ran = {run: durable.get(run, "totals")["keys"] for run in ("my-run", "other")}
    assert {run: keys[f"{SERIES}_valid_count"]["value"] for run, keys in ran.items()} == {
        "my-run": 16,
        "other": 48,
    }
    assert durable.stop() == 0
    assert rankfold("verify", "--store", durable.store).returncode == 0


def test_run_that_is_put_back_as_the_runbook_says_has_lost_nothing(
    durable: Server, tmp_path: Path
) -> None:
    """What only the journal has of it outlasts kills, and whatever is reported to others."""
    backup = tmp_path / "backup.db"
    with Server("memory://") as oracle:
        assert durable.stop() == 0
        durable.flags = ("--checkpoint-bytes", str(1 << 30))
        durable.start()
        for iteration in range(3):
            send(iteration, "my-run", durable, oracle)
            send(iteration, "other", durable, oracle)
        made = rankfold("backup", "--store", durable.store, "--to", str(backup))
        assert made.returncode == 0
        assert durable.stop() == 0
        durable.start()
        for iteration in range(3, 6):
            send(iteration, "my-run", durable, oracle)
            send(iteration, "other", durable, oracle)
        durable.kill()
        damage(durable)
        durable.flags = ("--checkpoint-bytes", "2000")
        for first in (6, 30):
            durable.start()
            for iteration in range(first, first + 20):
                send(iteration, "other", durable, oracle)
            assert_confined(durable)
            durable.kill()
            assert change(path_of(durable), "SELECT min(applied) FROM run") == [(12,)]
        durable.start()
        assert durable.stop() == 0
        # Two reports of each of three iterations.
        assert change(path_of(durable), "SELECT count(*) FROM journal") == [(6,)]
        with Server(f"sqlite:///{backup}") as copy:
            assert copy.stop() == 0
        ((_, script),) = blocks("docs/runbook.md", "sql")
        with closing(sqlite3.connect(path_of(durable))) as connection:
            connection.executescript(script.replace("backup.db", str(backup)))
        durable.start()
        for run in ("my-run", "other"):
            assert about(durable, run) == about(oracle, run)
        send(6, "my-run", durable, oracle)
        assert about(durable, "my-run") == about(oracle, "my-run")
        assert durable.stop() == 0
    assert change(path_of(durable), "SELECT count(*) FROM journal") == [(0,)]
    assert rankfold("verify", "--store", durable.store).returncode == 0
