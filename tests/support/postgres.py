"""The real PostgreSQL: a cluster of its own, on a port of its own, for who asks for it."""

from __future__ import annotations

import atexit
import functools
import itertools
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote, urlencode

import psycopg

from support.process import PATIENCE, Process, give, own_folder, run
from support.programs import find, needs
from support.server import free_port

SERVER = find("postgres")
needs_postgres = needs({"postgres": SERVER})
needs_openssl = needs({"openssl": find("openssl")})

SUPERUSER = "postgres"
PASSWORD = secrets.token_hex(8)
STOPS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_numbers = itertools.count()


def tool(name: str) -> str:
    """Return the path of a program that lies beside the server, such as `pg_dump`."""
    assert SERVER is not None, "postgres not found: run `make programs`"
    return str(Path(SERVER).resolve().with_name(name))


@functools.cache
def _template() -> Path:
    """Make the cluster that all others are copies of."""
    folder = own_folder("initdb")
    atexit.register(shutil.rmtree, folder)
    password = give(folder / "password", PASSWORD)
    how = ("--no-sync", "--locale=C", "--encoding=UTF8", "--auth=scram-sha-256")
    who = (f"--username={SUPERUSER}", f"--pwfile={password}")
    run([tool("initdb"), f"--pgdata={folder / 'data'}", *how, *who], folder)
    return folder / "data"


class Postgres(Process):
    """A cluster with its superuser, reached through TCP on this machine or a socket.

    Args:
        tls: whether it has a certificate and refuses connections over TCP without TLS.
        port: on which it listens, if it is not to be any.
        settings: of postgresql.conf. What is durable is so by default; a test that
            stops nothing saves time with `fsync="off"`.
    """

    # Killed, it would leave its sessions behind, which it takes along this way.
    ABRUPT = signal.SIGQUIT

    def __init__(self, *, tls: bool = False, port: int | None = None, **settings: str) -> None:
        super().__init__("postgres")
        self.port = port or free_port()
        self.data = self.folder / "data"
        self.certificate = self.folder / "certificate.pem"
        self.fill()
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            # The smallest of these, as tests are.
            "shared_buffers": "16MB",
            "max_wal_size": "64MB",
        } | settings
        if tls:
            self._certify()

    def fill(self) -> None:
        """Make its files."""
        subprocess.run(["cp", "-a", _template(), self.data], check=True)

    def _certify(self) -> None:
        key = self.folder / "key.pem"
        openssl = find("openssl")
        assert openssl is not None
        made = (f"-keyout={key}", f"-out={self.certificate}")
        subject = ("-subj=/CN=rankfold test", "-addext=subjectAltName=IP:127.0.0.1")
        command = [openssl, "req", "-x509", "-newkey=rsa:2048", "-nodes", "-days=1"]
        run([*command, *made, *subject], self.folder)
        self._settings |= {
            "ssl": "on",
            "ssl_cert_file": str(self.certificate),
            "ssl_key_file": str(key),
        }
        give(self.data / "pg_hba.conf", "hostssl all all 127.0.0.1/32 scram-sha-256\n")

    @property
    def command(self) -> Sequence[str | Path]:
        """The server with its settings."""
        settings = (f"--{name}={value}" for name, value in self._settings.items())
        return [tool("postgres"), f"-D{self.data}", *settings]

    def answers(self) -> bool:
        """Whether it takes connections; it does not while it recovers."""
        try:
            self.connect(connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def start(self) -> Self:
        """Start it and wait until it takes connections.

        What a killed server leaves behind ends by itself, but only then can the next begin.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            self.launch()
            assert self.process is not None
            while self.process.poll() is None:
                if self.answers():
                    return self
                time.sleep(0.02)
            last = self.log[-2000:]
            assert "shared memory block" in last or "lock file" in last, last
            assert time.monotonic() < deadline, last
            time.sleep(0.05)

    def stop(self, how: Literal["fast", "immediate"] = "fast") -> None:
        """Stop it: sessions are ended, or, immediately, as in a crash."""
        self.end(STOPS[how])

    def kill(self) -> None:
        """Kill its first process; the others notice."""
        self.end(signal.SIGKILL)

    def restart(self, how: Literal["fast", "immediate"] = "fast") -> None:
        """Stop it and start it again."""
        self.stop(how)
        self.start()

    def url(
        self, database: str, role: str = SUPERUSER, password: str = PASSWORD, **parameters: str
    ) -> str:
        """Return a database's URL."""
        given = f"?{urlencode(parameters)}" if parameters else ""
        return f"postgresql://{role}:{quote(password)}@127.0.0.1:{self.port}/{database}{given}"

    def connect(self, database: str = "postgres", **how: Any) -> psycopg.Connection[Any]:
        """Return the superuser's connection, each statement a transaction of its own."""
        return psycopg.connect(self.url(database), autocommit=True, **how)

    def execute(self, statement: str, *values: Any, database: str = "postgres") -> list[Any]:
        """Carry out a statement as the superuser and return its rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def create_database(self, owner: str = SUPERUSER) -> str:
        """Make an empty database and return its name."""
        name = f"rankfold_{next(_numbers)}"
        self.execute(f'CREATE DATABASE {name} OWNER "{owner}"')
        return name
