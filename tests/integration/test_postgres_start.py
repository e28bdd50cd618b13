"""What a start on PostgreSQL says at once of what does not heal by itself."""

from __future__ import annotations

import pytest

from rankfold.errors import StoreRefused
from rankfold.rules import RuleSet
from rankfold_service.store.postgres.opening import open_store
from support.postgres import Postgres, needs_postgres

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


def test_start_with_a_wrong_password_says_so(postgres: Postgres) -> None:
    """Nor for a password."""
    url = f"postgresql://postgres:wrong@127.0.0.1:{postgres.port}/postgres"
    with pytest.raises(StoreRefused, match="the password"):
        open_store(url, RuleSet())
