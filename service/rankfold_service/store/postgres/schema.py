"""Numbered migrations of the PostgreSQL store, and which schema a program may use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rankfold.errors import StoreRefused
from rankfold_service.store.postgres.database import Connection, Database
from rankfold_service.store.scripts import scripts

_TABLE = """
CREATE TABLE IF NOT EXISTS migration (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    needs      integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""
_NOTE = "INSERT INTO migration (number, name, needs) VALUES (%s, %s, %s)"
# Held while migrations run, so that of several aggregators that start only one applies them.
_LOCK = 0x524B4644
# In a migration that older programs cannot live with, the oldest schema whose programs can.
_NEEDS = re.compile(r"^-- needs programs of schema (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step.

    Attributes:
        number: the schema's version after it.
        name: of its file.
        sql: what it does.
        needs: the schema that the oldest program knows that may go on once it is applied.
    """

    number: int
    name: str
    sql: str
    needs: int


def migrations() -> list[Migration]:
    """Return all steps that this version knows, ascending."""
    return [migration(*script) for script in scripts("postgres")]


def migration(number: int, name: str, sql: str) -> Migration:
    """Return the step of one script; unless it says otherwise, older programs go on with it."""
    needs = _NEEDS.search(sql)
    return Migration(number, name, sql, int(needs[1]) if needs else 1)


def migrate(database: Database, steps: Sequence[Migration]) -> list[str]:
    """Apply what is missing, in one transaction; return the names of the steps.

    Raises:
        StoreRefused: the schema is newer than this version and cannot be used by it.
        StoreUnavailable: the database cannot be reached, or does not allow it.
    """

    def apply(connection: Connection) -> list[str]:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        connection.execute(_TABLE)
        number, needs = _applied(connection)
        _check_newer(database, number, needs, steps)
        pending = [step for step in steps if step.number > number]
        for step in pending:
            connection.execute(step.sql.encode())
            connection.execute(_NOTE, [step.number, step.name, step.needs])
        return [step.name for step in pending]

    return database.change(apply)


def prepare(database: Database, steps: Sequence[Migration]) -> None:
    """Make sure that the schema is one that this version can use; an empty database gets it.

    Raises:
        StoreRefused: it is too new, or it must be migrated first.
        StoreUnavailable: the database cannot be reached, or does not allow it.
    """

    def applied(connection: Connection) -> tuple[int, int]:
        ((present,),) = connection.execute("SELECT to_regclass('migration')").fetchall()
        return _applied(connection) if present else (0, 0)

    number, needs = database.change(applied)
    if number == 0:
        migrate(database, steps)
        return
    _check_newer(database, number, needs, steps)
    current = steps[-1].number
    if number < current:
        raise StoreRefused(
            f"{database.name} has schema {number}, older than {current}: run 'rankfold migrate "
            "--store postgresql://...'; aggregators of the older version may run on meanwhile"
        )


def _applied(connection: Connection) -> tuple[int, int]:
    """Return the number of a database's schema, 0 for none, and what it needs of programs."""
    ((number, needs),) = connection.execute(
        "SELECT coalesce(max(number), 0), coalesce(max(needs), 0) FROM migration"
    ).fetchall()
    return number, needs


def _check_newer(database: Database, number: int, needs: int, steps: Sequence[Migration]) -> None:
    current = steps[-1].number
    if number > current and needs > current:
        raise StoreRefused(
            f"{database.name} has schema {number}, newer than {current}, which this version "
            "knows: use the newer version"
        )
