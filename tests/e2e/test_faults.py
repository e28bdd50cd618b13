"""Whatever fails, in the end every answer is the oracle's; `make test-faults` is the long form."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from e2e.faults import disks
from e2e.faults.__main__ import play
from e2e.faults.aggregator import Aggregator, wait_until
from e2e.faults.expected import PATH, unlike
from e2e.faults.plan import Plan
from e2e.faults.stage import Stage
from rankfold.answers import JsonObject
from rankfold.ledger import Ledger
from rankfold.rules import RuleSet
from rankfold_service import present
from rankfold_service.store import Arrival
from rankfold_service.store.sqlite import SqliteStore
from support import reports

Fault = Callable[[Aggregator], AbstractContextManager[None]]


@pytest.mark.parametrize("seed", [1, 4])
def test_faults_leave_every_answer_equal_to_the_oracle(seed: int) -> None:
    """Kills, restarts and broken connections lose nothing, double nothing and change no bit."""
    assert play(seed, strikes=4).kills.total() >= 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[disks.SmallDisk]:
    """Yield a file system of a few hundred kilobytes."""
    disk = disks.SmallDisk(tmp_path, size="512k")
    if not disk.mounted:
        disk.close()
        pytest.skip("this kernel lets this user mount nothing; the limit on files stands in")
    yield disk
    disk.close()


def probe(server: Aggregator) -> tuple[int, str | None]:
    """Report to a run of its own; return the status and when to come again."""
    answer = server.ask("POST", "/api/v1/partials", b'{"run": "probe", "rank": 0}')
    return answer.status, answer.retry_after


def fail_and_settle(server: Aggregator, folder: Path, fault: Fault, *whys: str) -> None:
    """Let a disk fail under load, look at what is said of it, and settle once it works again."""
    with Stage(Plan(seed=2, iterations=8), folder, server, spool=False) as stage:
        stage.allow(3)
        wait_until(lambda: stage.proxy.traffic.statuses.get(200, 0) > 6, "reports are taken")
        with fault(server):
            stage.allow(6)
            wait_until(lambda: 503 in stage.proxy.traffic.statuses, "reports are refused")
            status, retry_after = probe(server)
            assert (status, retry_after is not None) == (503, True)
            ready = server.ask("GET", "/-/ready")
            assert ready.status == 503
            assert any(why in ready.json["detail"] for why in whys)
            assert server.ask("GET", "/-/healthy").status == 200
            assert server.ask("GET", PATH).status == 200
        assert server.ask("GET", PATH.replace("faults", "probe")).status == 404
        stage.settle()


@pytest.mark.parametrize("fault", [disks.no_room, disks.no_writes])
def test_disk_that_refuses_writes_loses_and_doubles_nothing(fault: Fault, tmp_path: Path) -> None:
    """A disk that is full or turns read-only means 503 until it works again, and no more."""
    fail_and_settle(Aggregator(tmp_path), tmp_path, fault, "disk I/O error")


def test_disk_that_is_full_loses_and_doubles_nothing(
    small_disk: disks.SmallDisk, tmp_path: Path
) -> None:
    """The same of a real file system without a free byte."""
    server = Aggregator(tmp_path, wrapper=small_disk.wrapper)
    fail_and_settle(server, tmp_path, small_disk.filled, "disk is full")


def test_disk_that_does_not_get_done_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """While writes hang, reports are refused rather than piled up, and readiness says so."""
    server = Aggregator(tmp_path, "--max-wait", "0.2")
    # Where the writer is still at a report, it does not come to the probe in time.
    whys = ("database is locked", "no write in")
    fail_and_settle(server, tmp_path, disks.no_progress, *whys)


def answers(ledger: Ledger) -> JsonObject:
    """Return what a run's totals are, and the times that its attempts show."""
    totals = {
        key.name: present.key_answer(key)
        for key in present.keys(ledger.facts, ledger.totals("all"))
    }
    return {"totals": totals, "attempts": [present.attempt(a) for a in ledger.chosen("all")]}


def test_clock_that_steps_changes_no_total(tmp_path: Path) -> None:
    """With a clock that jumps to and fro all answers but the times are what they are without."""
    rng = random.Random(0)
    said: list[dict[str, Any]] = [
        {
            "rank": rank,
            "attempt": iteration // 20,
            "world_size": 2,
            "partials": [reports.partial(iteration=iteration, count=1, max=0.1, sum=rng.random())],
            "commits": [{"iteration": iteration, "microbatches": 1}],
        }
        for iteration in range(40)
        for rank in range(2)
    ]
    found = []
    for name, clock in (("steady", lambda i: 1e9 + i), ("steps", lambda _: rng.uniform(0, 2e9))):
        path = tmp_path / f"{name}.db"
        for half in (said[:50], said[40:]):  # some come again, after a restart
            store = SqliteStore(path, RuleSet(), keep_iterations=4, checkpoint_bytes=2000)
            for index, body in enumerate(half):
                store.ingest([Arrival(reports.report(**body), clock(index))])
                store.maintain()
            store.close()
        store = SqliteStore(path, RuleSet())
        found.append(answers(store.run("default", "run")))
        store.close()
    steady, steps = found
    assert all("_report" in line for line in unlike(steady, steps))
    assert all(a["last_report"] >= a["first_report"] for a in steps["attempts"])
