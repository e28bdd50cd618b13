"""What a start on PostgreSQL says at once of what does not heal by itself."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from rankfold.errors import StoreRefused
from rankfold.rules import RuleSet
from rankfold_service.cli.main import main
from rankfold_service.store.postgres.opening import open_store
from support.postgres import Postgres, needs_postgres
from support.server import free_port

pytestmark = needs_postgres


def test_start_without_the_right_to_make_tables_names_who_has_it(postgres: Postgres) -> None:
    """The role that aggregators use cannot make tables; their owner can."""
    database = postgres.create_database()
    postgres.execute(f"CREATE ROLE poor_{database} LOGIN PASSWORD 'secret'")
    url = f"postgresql://poor_{database}:secret@127.0.0.1:{postgres.port}/{database}"
    with pytest.raises(StoreRefused, match="run 'rankfold migrate' as the owner"):
        open_store(url, RuleSet())


def test_start_on_a_database_that_is_not_there_says_so(postgres: Postgres) -> None:
    """Nobody waits for a name that was mistyped."""
    with pytest.raises(StoreRefused, match="create it first"):
        open_store(postgres.url("nowhere"), RuleSet())


def test_start_with_a_mode_of_tls_that_there_is_not_says_so(postgres: Postgres) -> None:
    """What a URL has wrong does not heal."""
    with pytest.raises(StoreRefused, match="correct its sslmode"):
        open_store(postgres.url("postgres", sslmode="bogus"), RuleSet())


def test_start_with_too_few_ports_for_its_hosts_says_so() -> None:
    """Each host has a port, or all have one."""
    with pytest.raises(StoreRefused, match="correct its URL"):
        open_store("postgresql://x@a,b,c/y?port=1,2", RuleSet())


def test_migrate_says_what_a_start_says(
    postgres: Postgres, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both exit with 2 and the same advice."""
    assert main(["migrate", "--store", postgres.url("nowhere")]) == 2
    assert "create it first" in capsys.readouterr().err


def test_start_that_waits_ends_when_it_is_told_to() -> None:
    """As the first process of a container too, which signals do not end by themselves."""
    serve = ("-m", "rankfold_service.cli.main", "serve", "--listen", "127.0.0.1:0")
    url = f"postgresql://x@127.0.0.1:{free_port()}/y"
    with subprocess.Popen(
        [sys.executable, *serve, "--store", url], stderr=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stderr is not None
        while "waiting for the store" not in waiting.stderr.readline():
            assert waiting.poll() is None
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(20) == 0


def test_start_with_a_wrong_password_says_so(postgres: Postgres) -> None:
    """Nor for a password."""
    url = f"postgresql://postgres:wrong@127.0.0.1:{postgres.port}/postgres"
    with pytest.raises(StoreRefused, match="are user and password right"):
        open_store(url, RuleSet())
