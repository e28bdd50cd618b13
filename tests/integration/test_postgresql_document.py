"""docs/postgresql.md: its roles are made as it says, and may do what it says and no more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from support.documents import ROOT, blocks
from support.postgres import Postgres, needs_postgres, tool
from support.reports import partial
from support.roles import DOCUMENT, OWNER, PASSWORDS, ROLE, make_roles, url
from support.server import Server

pytestmark = needs_postgres


Make = Callable[[Postgres], None]


@pytest.fixture
def server() -> Iterator[Postgres]:
    """Yield a server of this test's own, because roles belong to all databases of one."""
    with Postgres(fsync="off") as running:
        yield running


def by_image(server: Postgres) -> None:
    """Make them as the image of PostgreSQL does with what is mounted into it."""
    password = PASSWORDS[OWNER]
    server.execute(f"CREATE ROLE rankfold_owner SUPERUSER LOGIN PASSWORD '{password}'")
    server.execute("CREATE DATABASE rankfold OWNER rankfold_owner")
    psql = tool("psql")
    subprocess.run(
        [psql, "--set=ON_ERROR_STOP=1", f"--file={ROOT / 'docker/postgresql/roles.sql'}"],
        env=os.environ
        | {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(server.port),
            "PGDATABASE": "rankfold",
            "PGUSER": "rankfold_owner",
            "PGPASSWORD": password,
            "STORE_PASSWORD": PASSWORDS[ROLE],
        },
        check=True,
    )


@pytest.mark.parametrize("make", [make_roles, by_image])
def test_roles_may_do_what_they_need_and_no_more(server: Postgres, make: Make) -> None:
    """The owner makes tables; the other works with their rows, and changes no table."""
    make(server)
    with psycopg.connect(url(server, OWNER), autocommit=True) as owner:
        owner.execute("CREATE TABLE kept (id bigint GENERATED ALWAYS AS IDENTITY, x int)")
    with psycopg.connect(url(server, ROLE), autocommit=True) as connection:
        for allowed in (
            "INSERT INTO kept (x) VALUES (1)",
            "UPDATE kept SET x = 2",
            "SELECT * FROM kept FOR UPDATE",
            "DELETE FROM kept",
        ):
            connection.execute(allowed.encode())
        for refused in ("CREATE TABLE t (x int)", "CREATE TEMP TABLE t (x int)", "TRUNCATE kept"):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(refused.encode())
        limit = "SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user"
        assert connection.execute(limit.encode()).fetchone() == (40,)


def test_backup_is_restored_and_verified(postgres: Postgres, tmp_path: Path) -> None:
    """The commands copy a store in use; the copy is whole, and answers the same."""
    store, restored = (postgres.url(postgres.create_database()) for _ in range(2))
    ((_, script),) = blocks(DOCUMENT, "sh")
    programs = (str(Path(tool("pg_dump")).parent), str(Path(sys.executable).parent))
    with Server(store) as server:
        for rank in range(2):
            said = [partial(microbatch=index, count=1, max=0.1, sum=0.1) for index in range(3)]
            assert server.report(run="run", rank=rank, partials=said).status_code == 200
        path = os.pathsep.join((*programs, os.environ["PATH"]))
        done = subprocess.run(
            ["bash", "-euc", script],
            cwd=tmp_path,
            env=os.environ | {"STORE": store, "RESTORED": restored, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        wanted = server.get("run", "totals")
    with Server(restored) as server:
        assert server.get("run", "totals") == wanted


def test_document_names_what_exists() -> None:
    """Each path of the repository in it is there."""
    text = (ROOT / DOCUMENT).read_text()
    paths = re.findall(r"`(docker/[\w./-]+)`", text)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
