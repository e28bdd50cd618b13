"""Opens and migrates the shared store that a URL names."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing

import psycopg

from rankfold.errors import StoreRefused, StoreUnavailable
from rankfold.ledger import KEPT_ITERATIONS
from rankfold.rules import RuleSet
from rankfold_service.store import Store
from rankfold_service.store.moved import Moved
from rankfold_service.store.postgres.database import Database
from rankfold_service.store.postgres.schema import migrate as migrate_schema
from rankfold_service.store.postgres.schema import migrations
from rankfold_service.store.postgres.store import PostgresStore
from rankfold_service.store.postgres.transfer import transfer

# A database that starts together with us, or changes its place, is there by then.
PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 1.0

_log = logging.getLogger("rankfold.store")


def open_store(url: str, rules: RuleSet, keep_iterations: int = KEPT_ITERATIONS) -> PostgresStore:
    """Return the store in a database, and wait for a while until there is one.

    Raises:
        ConfigurationError: the URL cannot be understood.
        StoreRefused: the database is not reachable, or must not be used.
    """
    database = Database(url)
    try:
        return _waited_for(database, rules, keep_iterations)
    except BaseException:
        database.close()
        raise


def _waited_for(database: Database, rules: RuleSet, keep_iterations: int) -> PostgresStore:
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return PostgresStore(database, rules, keep_iterations=keep_iterations)
        except StoreUnavailable as error:
            if (advice := _advice(error)) is not None:
                raise StoreRefused(f"{error}: {advice}") from error
            if time.monotonic() > until:
                raise StoreRefused(f"{error}: is it running, and may this user use it?") from error
            _log.warning("waiting for the store: %s", error)
            time.sleep(PAUSE_SECONDS)


def _advice(error: StoreUnavailable) -> str | None:
    """Say what to do about what does not heal by itself; None where waiting may help."""
    # What a connection is refused for comes without a code: there only its words are left.
    cause = error.__cause__
    code = (cause.sqlstate or "") if isinstance(cause, psycopg.Error) else ""
    if code == "42501":
        return "run 'rankfold migrate' as the owner of its tables, and grant this user the rest"
    if code == "3D000" or "does not exist" in str(error):
        return "create it first, and see docs/postgresql.md"
    if code.startswith("28") or "authentication failed" in str(error):
        return "are the user and the password right?"
    return None


def transfer_into(url: str, source: Store) -> Iterator[Moved]:
    """Move every run of a store into the one at a URL, and yield what became of each.

    Raises:
        StoreRefused: the database must not be used, or has a run with other content.
        StoreUnavailable: it cannot be written.
    """
    with closing(open_store(url, RuleSet())) as target:
        yield from transfer(source, target)


def migrate(url: str) -> list[str]:
    """Bring a database to the current schema; return the names of the steps that were applied.

    Raises:
        ConfigurationError: the URL cannot be understood.
        StoreRefused: its schema is newer than this version.
        StoreUnavailable: it is not reachable, or does not allow it.
    """
    with closing(Database(url)) as database:
        return migrate_schema(database, migrations())
