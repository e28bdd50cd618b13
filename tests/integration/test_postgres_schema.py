"""The schema of the shared store: made once, upgraded while older aggregators go on, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from contract.stores import RULES
from rankfold.errors import StoreRefused
from rankfold.wire import Receipt
from rankfold_service.store import Arrival
from rankfold_service.store.postgres import store as stores
from rankfold_service.store.postgres.database import Database
from rankfold_service.store.postgres.opening import migrate, open_store
from rankfold_service.store.postgres.schema import Migration, migration, migrations, prepare
from rankfold_service.store.postgres.schema import migrate as migrate_schema
from support.postgres import Postgres, needs_postgres
from unit.core.builders import partial, report

pytestmark = needs_postgres

ADDITIVE = migration(
    2,
    "0002_more",
    """
ALTER TABLE run ADD COLUMN note text NOT NULL DEFAULT '';
ALTER TABLE page ADD COLUMN size integer;
ALTER TABLE journal ADD COLUMN size integer;
CREATE INDEX ON book (version);
""",
)
BREAKING = migration(
    2, "0002_other", "-- needs programs of schema 2\nALTER TABLE probe ADD x integer"
)


@pytest.fixture
def url(postgres: Postgres) -> str:
    """Return the URL of an empty database."""
    return postgres.url(postgres.create_database())


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """Yield a connection to it."""
    opened = Database(url)
    yield opened
    opened.close()


def upgraded(*further: Migration) -> list[Migration]:
    """Return the steps that a newer version knows."""
    return [*migrations(), *further]


def test_stores_that_start_at_once_make_the_schema_once(url: str) -> None:
    """All of them start on an empty database, and are of use."""
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda _: open_store(url, RULES), range(4)))
    for number, store in enumerate(opened):
        assert store.ingest([Arrival(report(number), 1.0)]) == [Receipt(0, 0, 0)]
        store.close()
    assert migrate(url) == []


def test_migrations_that_run_at_once_apply_each_step_once(url: str) -> None:
    """Only one of them has something to do, and again there is nothing."""
    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(migrate, [url] * 4))
    assert sorted(applied, key=len)[:3] == [[], [], []]
    assert [step for steps in applied for step in steps] == [step.name for step in migrations()]


def test_older_aggregators_go_on_while_the_schema_is_upgraded(
    url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports are taken before, during and after; then newer and older ones work side by side."""
    old = open_store(url, RULES)

    def go_on(first: int) -> None:
        for i in range(first, first + 40):
            taken = old.ingest([Arrival(report(0, [partial(i)]), 1.0)])
            assert taken == [Receipt(1, 0, 0)]
            seen = old.run("default", "run").totals("all").series
            assert [fold.partials for fold in seen.values()] == [i + 1]

    go_on(0)
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(go_on, 40)
        assert migrate_schema(database, upgraded(ADDITIVE)) == ["0002_more"]
        going.result()
    go_on(80)
    monkeypatch.setattr(stores, "migrations", lambda: upgraded(ADDITIVE))
    new = open_store(url, RULES)
    assert new.ingest([Arrival(report(0, [partial(3), partial(3, 1)]), 1.0)]) == [Receipt(1, 1, 0)]
    seen = old.run("default", "run").totals("all").series
    assert [fold.partials for fold in seen.values()] == [121]
    monkeypatch.undo()
    open_store(url, RULES).close()
    for each in (old, new):
        each.close()


def test_schema_that_is_too_old_or_too_new_is_refused(url: str, database: Database) -> None:
    """A start says at once what to do; an upgrade that is refused changes nothing."""
    migrate(url)
    with pytest.raises(StoreRefused, match="run 'rankfold migrate"):
        prepare(database, upgraded(BREAKING))
    assert migrate_schema(database, upgraded(BREAKING)) == ["0002_other"]
    with pytest.raises(StoreRefused, match="use the newer version"):
        open_store(url, RULES)
    with pytest.raises(StoreRefused, match="use the newer version"):
        migrate(url)
    prepare(database, upgraded(BREAKING))
