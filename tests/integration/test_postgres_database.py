"""Transactions over one connection: run again where that helps, never twice, and never for ever."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from rankfold.errors import StoreUnavailable
from rankfold_service.store.postgres import database as databases
from rankfold_service.store.postgres.database import TRIES, Database
from support.postgres import Postgres, needs_postgres

pytestmark = needs_postgres

ADD = "UPDATE counter SET n = n + 1 WHERE id = %b"
END_MYSELF = "SELECT pg_terminate_backend(pg_backend_pid())"
COLLIDE = "DO $$ BEGIN RAISE serialization_failure; END $$"


@pytest.fixture
def name(postgres: Postgres) -> str:
    """Return a database with two counters."""
    made = postgres.create_database()
    table = "CREATE TABLE counter AS SELECT id, 0 AS n FROM generate_series(1, 2) AS id"
    postgres.execute(table, database=made)
    return made


@pytest.fixture
def database(postgres: Postgres, name: str) -> Iterator[Database]:
    """Yield a connection to it."""
    opened = Database(postgres.url(name))
    yield opened
    opened.close()


def counters(postgres: Postgres, name: str) -> list[int]:
    """Return both counters."""
    found = postgres.execute("SELECT n FROM counter ORDER BY id", database=name)
    return [n for (n,) in found]


def test_transactions_that_wait_for_each_other_both_commit(postgres: Postgres, name: str) -> None:
    """The one that the server ends is run again."""
    met = threading.Barrier(2)
    tries = []

    def work(order: tuple[int, int]) -> None:
        mine = Database(postgres.url(name))

        def write() -> None:
            tries.append(order)
            mine.send(ADD, order[0])
            mine.rows("SELECT 1")
            if len(tries) <= 2:
                met.wait(10)
            mine.send(ADD, order[1])

        mine.write(write)
        mine.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, [(1, 2), (2, 1)]))
    assert len(tries) >= 3
    assert counters(postgres, name) == [2, 2]


@pytest.mark.parametrize("statement", [COLLIDE, END_MYSELF])
def test_transaction_that_is_ended_once_is_run_again_once(
    postgres: Postgres, name: str, database: Database, statement: str
) -> None:
    """By a collision or with its session: what it did before counts once."""
    tries = []

    def write() -> None:
        tries.append(1)
        database.send(ADD, 1)
        if len(tries) == 1:
            database.send(statement)

    database.write(write)
    assert len(tries) == 2
    assert counters(postgres, name) == [1, 0]


@pytest.mark.parametrize(
    ("statement", "most", "why"),
    [
        (COLLIDE, TRIES, "serialization"),
        (END_MYSELF, 2, "closed the connection|terminating connection"),
    ],
)
def test_transaction_that_is_always_ended_is_given_up(
    postgres: Postgres, name: str, database: Database, statement: str, most: int, why: str
) -> None:
    """After so many tries; the first error is what is said, and the next transaction works."""
    tries = []

    def write() -> None:
        tries.append(1)
        database.send(ADD, 1)
        database.send(statement)

    with pytest.raises(StoreUnavailable, match=why):
        database.write(write)
    assert len(tries) == most
    database.write(lambda: database.send(ADD, 2))
    assert counters(postgres, name) == [0, 1]


def test_session_that_ended_meanwhile_is_not_noticed(
    postgres: Postgres, name: str, database: Database
) -> None:
    """Between two transactions a connection may be lost; a moment that was read goes with it."""
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    database.write(lambda: database.send(ADD, 1))
    postgres.execute(end, name)
    database.write(lambda: database.send(ADD, 1))
    assert database.read(lambda: database.rows("SELECT n FROM counter WHERE id = 1")) == [(2,)]
    postgres.execute(end, name)
    with pytest.raises(StoreUnavailable, match=r"closed the connection|terminating connection"):
        database.rows("SELECT 1")
    assert database.read(lambda: database.rows("SELECT 1")) == [(1,)]


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout"])
def test_lock_and_statement_are_waited_for_within_bounds(
    postgres: Postgres,
    name: str,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
) -> None:
    """Whoever holds a row too long is not waited for any longer, and nothing is done."""
    seconds = {"lock_timeout": "5000", "statement_timeout": "10000"}[limit]
    short = databases._SETTINGS.replace(f"'{limit}', '{seconds}'", f"'{limit}', '100'")
    assert short != databases._SETTINGS
    monkeypatch.setattr(databases, "_SETTINGS", short)
    with postgres.connect(name) as other, other.transaction():
        other.execute("UPDATE counter SET n = 7 WHERE id = 1")
        with pytest.raises(StoreUnavailable, match=limit.replace("_", " ")):
            database.write(lambda: database.send(ADD, 1))
    database.write(lambda: database.send(ADD, 1))
    assert counters(postgres, name) == [8, 0]


def test_no_statement_is_compiled(database: Database) -> None:
    """A server does so by default where a plan looks dear, and takes a second for it."""
    assert database.read(lambda: database.rows("SHOW jit")) == [("off",)]
    assert database.write(lambda: database.rows("SHOW jit")) == [("off",)]


def test_server_that_says_nothing_is_given_up(
    postgres: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is shut, and another one does what was to be done, once."""
    monkeypatch.setattr(databases, "SILENCE_SECONDS", 0.5)
    database = Database(postgres.url(name))
    pids = []

    def write() -> None:
        ((pid,),) = database.rows("SELECT pg_backend_pid()")
        pids.append(pid)
        if len(pids) == 1:
            os.kill(pid, signal.SIGSTOP)
        # Whoever decides by what a transaction has read has sent no commit until it has that.
        database.rows("SELECT 1")
        database.send(ADD, 1)

    try:
        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(database.write, write)
            with suppress(TimeoutError):
                going.result(5)
            os.kill(pids[0], signal.SIGCONT)
            going.result()
    finally:
        database.close()
    assert len(pids) == 2
    assert counters(postgres, name) == [1, 0]
