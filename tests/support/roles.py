"""A database as docs/postgresql.md prepares one: its owner, and the role of the aggregators."""

from __future__ import annotations

import subprocess
import sys

from support.documents import blocks
from support.postgres import Postgres

DOCUMENT = "docs/postgresql.md"
DATABASE = "rankfold"
OWNER, ROLE = "rankfold_owner", "rankfold"
PASSWORDS = {OWNER: "put your own here", ROLE: "and another here"}


def url(server: Postgres, role: str, **parameters: str) -> str:
    """Return the database's URL for one of the roles."""
    return server.url(DATABASE, role, PASSWORDS[role], **parameters)


def make_roles(server: Postgres) -> None:
    """Make the roles and the database, in the document's two steps."""
    (_, roles), (_, privileges) = blocks(DOCUMENT, "sql")
    for statement in filter(None, map(str.strip, roles.split(";"))):
        server.execute(statement)  # one at a time: a database is not made in a transaction
    server.execute(f"SET SESSION AUTHORIZATION {OWNER}; {privileges}", database=DATABASE)


def make_tables(server: Postgres) -> None:
    """Make the tables, as the owner, by the command."""
    command = (sys.executable, "-m", "rankfold_service.cli.main", "migrate")
    subprocess.run([*command, "--store", url(server, OWNER)], check=True, capture_output=True)
