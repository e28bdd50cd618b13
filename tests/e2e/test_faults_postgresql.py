"""Whatever befalls the shared database or one of its aggregators, every answer is the oracle's.

`make test-faults ARGS="--store postgresql"` is the long form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import count, islice, repeat
from pathlib import Path

import pytest

from e2e.faults import databases
from e2e.faults.__main__ import play
from e2e.faults.aggregator import Answer
from e2e.faults.plan import Plan
from e2e.faults.replicas import Replicas
from e2e.faults.stage import Stage
from support.haproxy import needs_haproxy
from support.pgbouncer import needs_pgbouncer
from support.postgres import Postgres, needs_openssl, needs_postgres

Fault = Callable[[Postgres], AbstractContextManager[None]]

pytestmark = [needs_postgres, needs_haproxy]

# What befalls the database, and what readiness says of it.
FAULTS: tuple[tuple[Fault, str], ...] = (
    (databases.away, "connection failed"),
    (databases.crowded, "too many connections for role"),
    (databases.locked, "no write in"),
)


@needs_pgbouncer
def test_faults_leave_every_answer_of_each_aggregator_equal_to_the_oracle() -> None:
    """Through PgBouncer: aggregators, sessions, the database and reporters are killed."""
    assert play(3, strikes=4, store="postgresql").kills.total() >= 3


@needs_openssl
def test_database_that_fails_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Over TLS: reports get 503, readiness says why, and all are taken later."""
    server = Replicas(tmp_path, way="encrypted")
    plan = Plan(seed=2, iterations=2 * len(FAULTS) + 2)
    with Stage(plan, tmp_path, server, spool=False) as stage:
        for number, (fault, why) in enumerate(FAULTS):
            stage.allow(2 * number + 1)
            server.resumed()
            with fault(server.postgres):
                stage.allow(2 * number + 2)
                assert refusal(server, repeat("probe")).retry_after is not None
                one = server.each[number % 2]
                ready = one.ask("GET", "/-/ready")
                assert ready.status == 503
                assert why in ready.json["detail"]
                assert one.ask("GET", "/-/healthy").status == 200
        stage.settle()


def test_standby_that_takes_over_has_all_that_was_acknowledged(tmp_path: Path) -> None:
    """Twice, under load: aggregators find it by themselves, and every answer is the oracle's."""
    server = Replicas(tmp_path, way="mirrored")
    with Stage(Plan(seed=1, iterations=12), tmp_path, server, spool=False) as stage:
        processes = [one.process for one in server.each]
        for number in range(2):
            stage.allow(4 * number + 4)
            server.resumed()
            server.promote()
            server.resumed()
            server.follow()
        assert [one.process for one in server.each] == processes
        assert not any(one.ended() for one in server.each)
        stage.settle()


def test_database_whose_disk_is_full_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """What needs no room is taken; what does is refused, and taken once there is room."""
    server = Replicas(tmp_path)
    disk = databases.SmallDisk(server.postgres, size="72m")
    if not disk.usable:
        server.close()
        pytest.skip("only root can give a database, which root may not run, a disk of its own")
    with Stage(Plan(seed=2, iterations=8), tmp_path, server, spool=False) as stage:
        stage.allow(3)
        server.resumed()
        with disk.full():
            stage.allow(6)
            # Each new run needs room.
            refused = refusal(server, (f"probe-{number}" for number in count()))
            assert refused.retry_after is not None
            assert "No space left on device" in refused.text
        stage.settle()
    disk.close()


def refusal(server: Replicas, runs: Iterable[str]) -> Answer:
    """Report to one run after another until a report is refused for now."""
    for run in islice(runs, 10_000):
        answer = server.probe(run)
        if answer.status == 503:
            return answer
    raise AssertionError("no report is refused")
