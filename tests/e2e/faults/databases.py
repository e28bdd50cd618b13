"""What befalls a PostgreSQL under running aggregators, for as long as a context lasts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Literal

from support.postgres import Postgres
from support.roles import DATABASE, ROLE

from . import disks

Ending = Literal["fast", "immediate", "kill"]

SESSIONS = "SELECT pid FROM pg_stat_activity WHERE usename = %s"
TABLES = "SELECT string_agg(tablename, ', ') FROM pg_tables WHERE schemaname = 'public'"


@contextmanager
def away(postgres: Postgres, how: Ending = "fast") -> Iterator[None]:
    """Stop it, in order, as in a crash, or by killing it."""
    if how == "kill":
        postgres.kill()
    else:
        postgres.stop(how)
    try:
        yield
    finally:
        postgres.start()


@contextmanager
def locked(postgres: Postgres) -> Iterator[None]:
    """Hold every table, so that each statement waits."""
    ((tables,),) = postgres.execute(TABLES, database=DATABASE)
    with postgres.connect(DATABASE) as connection, connection.transaction():
        connection.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE".encode())
        yield


@contextmanager
def paused(postgres: Postgres) -> Iterator[None]:
    """Stop the aggregators' sessions where they are, as a machine does that is overwhelmed."""
    pids = [pid for (pid,) in postgres.execute(SESSIONS, ROLE)]
    for pid in pids:
        with suppress(ProcessLookupError):  # it may just have ended
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextmanager
def silenced(postgres: Postgres) -> Iterator[None]:
    """Stop the aggregators' sessions, of which none has at that moment what every commit needs.

    One that is stopped while it writes the log of PostgreSQL stops all others until it goes on:
    that is a database which hangs, and nobody can take over.
    """
    for _ in range(100):
        with paused(postgres):
            if _commits(postgres):
                yield
                return
        time.sleep(0.01)
    raise AssertionError("the sessions were writing the log each time they were stopped")


def _commits(postgres: Postgres) -> bool:
    """Whether others can commit within a second."""
    ours = ThreadPoolExecutor(1)
    try:
        ours.submit(postgres.execute, "SELECT pg_logical_emit_message(true, 'a', 'b')").result(1.0)
    except TimeoutError:
        return False
    else:
        return True
    finally:
        ours.shutdown(wait=False)


@contextmanager
def crowded(postgres: Postgres) -> Iterator[None]:
    """Grant the aggregators no connection, and end those that they have."""
    ((limit,),) = postgres.execute("SELECT rolconnlimit FROM pg_roles WHERE rolname = %s", ROLE)
    postgres.execute(f"ALTER ROLE {ROLE} CONNECTION LIMIT 0")
    terminate(postgres)
    try:
        yield
    finally:
        postgres.execute(f"ALTER ROLE {ROLE} CONNECTION LIMIT {limit}")


class SmallDisk:
    """A disk of its own for a cluster that does not run yet, to be filled.

    Args:
        postgres: the cluster.
        size: of the disk, as mount takes it.

    Attributes:
        usable: whether this user may make one and run a database on it.
    """

    def __init__(self, postgres: Postgres, size: str) -> None:
        self.usable = os.geteuid() == 0
        if not self.usable:
            return
        original = postgres.data.rename(postgres.data.with_name("original"))
        postgres.data.mkdir()
        self._disk = disks.SmallDisk(postgres.data, size)
        self.usable = self._disk.mounted
        if self.usable:
            copy = ("cp", "-a", "--no-target-directory", original, self._disk.inside)
            subprocess.run(copy, check=True)
            postgres.within = self._disk.wrapper

    def full(self) -> AbstractContextManager[None]:
        """Leave no byte free for as long as the context lasts."""
        return self._disk.filled()

    def close(self) -> None:
        """Give it up."""
        self._disk.close()


def terminate(postgres: Postgres) -> int:
    """End the aggregators' sessions, whatever they are at; return how many there were."""
    return len(postgres.execute(SESSIONS.replace("pid", "pg_terminate_backend(pid)", 1), ROLE))
