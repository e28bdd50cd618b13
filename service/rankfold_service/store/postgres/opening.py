"""Opens and migrates the shared store that a URL names."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

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
MOST_PAUSE_SECONDS = 8.0

# The beginning of an error's code, or None, words of one without a code, and what to do.
_ADVICE: tuple[tuple[str | None, tuple[str, ...], str], ...] = (
    ("42501", (), "run 'rankfold migrate' as the owner, and grant as docs/postgresql.md says"),
    (None, ("sslmode", "certificate", "not support SSL"), "correct its sslmode and sslrootcert"),
    ("3D000", ("does not exist",), "create it first, as docs/postgresql.md says"),
    ("28", ("authentication failed", "no password supplied"), "are user and password right?"),
    (None, ("invalid ", "could not match"), "correct its URL"),
)

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
    until, pause = time.monotonic() + PATIENCE_SECONDS, PAUSE_SECONDS
    while True:
        try:
            with explained():
                return PostgresStore(database, rules, keep_iterations=keep_iterations)
        except StoreUnavailable as error:
            if time.monotonic() > until:
                raise StoreRefused(f"{error}: is it running, and may this user use it?") from error
            _log.warning("waiting for the store: %s", error)
            time.sleep(pause)
            pause = min(2 * pause, MOST_PAUSE_SECONDS)


@contextmanager
def explained() -> Iterator[None]:
    """Refuse at once what does not heal by itself, and say what to do about it.

    Raises:
        StoreRefused: in place of a `StoreUnavailable` for which waiting is of no use.
    """
    try:
        yield
    except StoreUnavailable as error:
        cause = error.__cause__
        code = (cause.sqlstate or "") if isinstance(cause, psycopg.Error) else ""
        # What a connection is refused for comes without a code: only its words are left.
        for known, words, advice in _ADVICE:
            said = any(word in str(error) for word in words)
            if (known is not None and code.startswith(known)) if code else said:
                raise StoreRefused(f"{error}: {advice}") from error
        raise


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
        StoreRefused: its schema is newer than this version, or it does not allow it.
        StoreUnavailable: it is not reachable.
    """
    with closing(Database(url)) as database, explained():
        return migrate_schema(database, migrations())
