"""The real PostgreSQL, PgBouncer and HAProxy do for the tests what they are there for."""

from __future__ import annotations

import os
import subprocess

import httpx
import psycopg
import pytest

from support.haproxy import HaProxy, needs_haproxy
from support.pgbouncer import PgBouncer, needs_pgbouncer
from support.postgres import Postgres, needs_openssl, needs_postgres
from support.programs import FETCHED
from support.reports import SERIES, partial
from support.server import Server


@needs_postgres
def test_postgres_keeps_what_was_committed() -> None:
    """Through a crash, a kill and a restart; deadlocks would be in its log."""
    with Postgres() as server:
        name = server.create_database()
        server.execute("CREATE TABLE t (x int)", database=name)
        for number, end in enumerate((lambda: server.stop("immediate"), server.kill, server.stop)):
            server.execute("INSERT INTO t VALUES (%s)", number, database=name)
            end()
            server.start()
        assert server.execute("SELECT x FROM t ORDER BY x", database=name) == [(0,), (1,), (2,)]
        assert "not properly shut down" in server.log
        assert "deadlock" not in server.log


@needs_postgres
@needs_openssl
def test_postgres_proves_by_tls_who_it_is() -> None:
    """Its certificate is believed for its address, no other is, and nothing goes in the clear."""
    with Postgres(tls=True) as server:
        root = str(server.certificate)
        verified = server.url("postgres", sslmode="verify-full", sslrootcert=root)
        with psycopg.connect(verified) as connection:
            query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            assert connection.execute(query).fetchone() == (True,)
        other = verified.replace("127.0.0.1", "localhost")
        for refused in (server.url("postgres", sslmode="disable"), other):
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(refused)


@needs_postgres
@needs_pgbouncer
def test_pgbouncer_lends_a_connection_for_a_transaction(postgres: Postgres) -> None:
    """Two clients that are connected at once are served by one connection, in turn."""
    name = postgres.create_database()
    query = "SELECT pg_backend_pid()"
    with (
        PgBouncer(postgres, pool=1) as bouncer,
        psycopg.connect(bouncer.url(name), autocommit=True) as one,
        psycopg.connect(bouncer.url(name), autocommit=True) as other,
    ):
        assert one.execute(query).fetchone() == other.execute(query).fetchone()


@needs_haproxy
def test_haproxy_goes_on_with_the_aggregator_that_is_left() -> None:
    """Connections are spread; a kill costs one answer at most, and none at all is a 503."""
    with (
        Server("memory://") as one,
        Server("memory://") as other,
        HaProxy(one.port, other.port) as balancer,
    ):
        said = [report(balancer.url, number) for number in range(32)]
        assert [answer.status_code for answer in said] == [200] * 32
        key = f"{SERIES}_valid_count"
        values = [server.get("run", "totals")["keys"][key]["value"] for server in (one, other)]
        assert min(values) > 0
        assert sum(values) == 32 * 8
        one.kill()
        said = [report(balancer.url, number) for number in range(32, 40)]
        refused = [answer for answer in said if answer.status_code != 200]
        assert len(refused) <= 1  # of the connection that the kill has cut
        for answer in refused:
            assert (answer.status_code, answer.headers["retry-after"]) == (502, "1")
        other.kill()
        answer = [report(balancer.url, 40) for _ in range(2)][-1]
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert {**answer.json(), "detail": ""} == {
            "type": "urn:rankfold:problem:unavailable",
            "title": "Not now; send it again later",
            "status": 503,
            "detail": "",
            "code": "unavailable",
            "retryable": True,
        }


@pytest.mark.skipif(not (FETCHED / "usr").is_dir(), reason="all programs are installed here")
def test_programs_that_were_fetched_start_by_hand() -> None:
    """With their folder on the path, they find the libraries that came with them."""
    plain = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    started = 0
    for name in ("haproxy", "pgbouncer", "postgres", "promtool", "prometheus-alertmanager"):
        if (FETCHED / "bin" / name).exists():
            command = [FETCHED / "bin" / name, "-v" if name == "haproxy" else "--version"]
            subprocess.run(command, env=plain, capture_output=True, check=True)
            started += 1
    assert started


def report(url: str, microbatch: int) -> httpx.Response:
    """Send a partial over a connection of its own."""
    said = partial(microbatch=microbatch)
    return httpx.post(f"{url}/api/v1/partials", json={"run": "run", "rank": 0, "partials": [said]})
