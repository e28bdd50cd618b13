"""The real PgBouncer in front of a cluster, in transaction mode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import psycopg

from support.postgres import PASSWORD, SUPERUSER, Postgres
from support.process import Process, give
from support.programs import find, needs
from support.server import free_port

PROGRAM = find("pgbouncer")
needs_pgbouncer = needs({"pgbouncer": PROGRAM})

CONFIG = """
[databases]
* = host=127.0.0.1 port={server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 200
server_login_retry = 0.2
"""


class PgBouncer(Process):
    """A pool of connections to a cluster, which clients take a transaction at a time.

    Args:
        postgres: the cluster.
        pool: how many connections there are at most, for each user of each database.
        users: the passwords of those beside the superuser who may connect.
    """

    def __init__(self, postgres: Postgres, pool: int = 4, **users: str) -> None:
        super().__init__("pgbouncer")
        self.port = free_port()
        self._users = {SUPERUSER: PASSWORD} | users
        lines = (f'"{name}" "{password}"\n' for name, password in self._users.items())
        known = give(self.folder / "users.txt", "".join(lines))
        text = CONFIG.format(server=postgres.port, port=self.port, users=known, pool=pool)
        self._config = give(self.folder / "pgbouncer.ini", text)

    @property
    def command(self) -> Sequence[str | Path]:
        """PgBouncer with its configuration."""
        assert PROGRAM is not None
        return [PROGRAM, self._config]

    def answers(self) -> bool:
        """Whether it takes connections to the database of its own."""
        try:
            psycopg.connect(self.url("pgbouncer"), connect_timeout=5).close()
        except psycopg.OperationalError as error:
            # It does not let this user into its console, which it can only say once it listens.
            return "not allowed" in str(error)
        return True

    def url(self, database: str, role: str = SUPERUSER) -> str:
        """Return a database's URL through it."""
        password = quote(self._users[role])
        return f"postgresql://{role}:{password}@127.0.0.1:{self.port}/{database}"
