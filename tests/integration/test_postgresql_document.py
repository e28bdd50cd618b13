"""docs/postgresql.md: its roles are made as it says, and may do what it says and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from support.documents import ROOT, blocks
from support.postgres import Postgres, needs_postgres

DOCUMENT = "docs/postgresql.md"
PASSWORDS = {"rankfold_owner": "put your own here", "rankfold": "and another here"}

pytestmark = needs_postgres


@pytest.fixture
def server() -> Iterator[Postgres]:
    """Yield a server of this test's own, because roles belong to all databases of one."""
    with Postgres(fsync="off") as running:
        yield running


def enter(server: Postgres, role: str, database: str = "rankfold") -> psycopg.Connection[Any]:
    """Connect as one of the roles, each statement a transaction of its own."""
    parts = f"postgresql://{role}@127.0.0.1:{server.port}/{database}"
    return psycopg.connect(parts, password=PASSWORDS[role], autocommit=True)


def test_roles_may_do_what_they_need_and_no_more(server: Postgres) -> None:
    """The owner makes tables; the other works with their rows, and changes no table."""
    (_, roles), (_, privileges) = blocks(DOCUMENT, "sql")
    for statement in filter(None, map(str.strip, roles.split(";"))):
        server.execute(statement)  # one at a time: a database is not made in a transaction
    with enter(server, "rankfold_owner") as owner:
        owner.execute(privileges.encode())
        owner.execute("CREATE TABLE kept (id bigint GENERATED ALWAYS AS IDENTITY, x int)")
    with enter(server, "rankfold") as connection:
        for allowed in (
            "INSERT INTO kept (x) VALUES (1)",
            "UPDATE kept SET x = 2",
            "SELECT * FROM kept FOR UPDATE",
            "DELETE FROM kept",
        ):
            connection.execute(allowed.encode())
        for refused in ("CREATE TABLE t (x int)", "DROP TABLE kept", "TRUNCATE kept"):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(refused.encode())
        (timeout,) = connection.execute("SHOW statement_timeout").fetchone() or ()
        assert timeout == "10s"


def test_document_names_what_exists() -> None:
    """Each path of the repository in it is there."""
    text = (ROOT / DOCUMENT).read_text()
    paths = re.findall(r"`(docker/[\w./-]+)`", text)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
