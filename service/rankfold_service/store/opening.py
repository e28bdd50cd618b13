"""Which adapter a store's URL names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rankfold.audit import audit
from rankfold.errors import ConfigurationError, StoreDamaged, StoreRefused
from rankfold.ledger import KEPT_ITERATIONS
from rankfold.rules import RuleSet
from rankfold_service.store import Store, copying
from rankfold_service.store.memory import MemoryStore
from rankfold_service.store.migrate import migrate_file
from rankfold_service.store.moved import Moved
from rankfold_service.store.sqlite import (
    DEFAULT_CHECKPOINT_BYTES,
    SqliteStore,
)
from rankfold_service.store.urls import MEMORY, is_postgres, sqlite_path


def open_store(
    url: str,
    rules: RuleSet,
    *,
    keep_iterations: int = KEPT_ITERATIONS,
    checkpoint_bytes: int = DEFAULT_CHECKPOINT_BYTES,
) -> Store:
    """Return the store that a URL names.

    Args:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://...` as libpq takes
            it, or `memory://`, which forgets.
        rules: the rules in force.
        keep_iterations: newest iterations of each attempt that stay as reported.
        checkpoint_bytes: how long a journal may grow.

    Raises:
        ConfigurationError: the URL names no store that is known.
        StoreRefused: the store must not be opened.
    """
    if url == MEMORY:
        return MemoryStore(rules, keep_iterations=keep_iterations)
    if is_postgres(url):
        store: Store = _postgres().open_store(url, rules, keep_iterations)
        return store
    return SqliteStore(
        sqlite_path(url),
        rules,
        keep_iterations=keep_iterations,
        checkpoint_bytes=checkpoint_bytes,
    )


def migrate(url: str) -> list[str]:
    """Bring a store to the current schema; return the names of the steps that were applied.

    Raises:
        ConfigurationError: the URL names no store that has a schema.
        StoreRefused: the store cannot be migrated.
    """
    if is_postgres(url):
        applied: list[str] = _postgres().migrate(url)
        return applied
    return migrate_file(sqlite_path(url))


def transfer(source: str, target: str) -> Iterator[Moved]:
    """Move every run of a SQLite store into a PostgreSQL one, and yield what became of each.

    What was moved before is compared only, so that a move that broke off goes on.

    Raises:
        ConfigurationError: a URL names no such store.
        StoreRefused: a store must not be opened, or is in use.
        StoreUnavailable: the target cannot be written.
    """
    if is_postgres(source) or not is_postgres(target):
        raise ConfigurationError(
            "runs are moved from a SQLite store into a PostgreSQL one: "
            "--from sqlite:///PATH --to postgresql://USER@HOST/DATABASE"
        )
    path = sqlite_path(source)
    if not path.exists():
        raise StoreRefused(f"{path} is not there: name the store to move")
    with closing(SqliteStore(path, RuleSet())) as kept:
        yield from _postgres().transfer_into(target, kept)


def verify(url: str) -> Iterator[str]:
    """Open a store as a start would, fold all its pages anew, and yield what differs or is damaged.

    Raises:
        ConfigurationError: the URL names no store that is kept.
        StoreRefused: the store must not be opened, or is in use.
    """
    if is_postgres(url):
        with closing(_postgres().open_store(url, RuleSet())) as shared:
            yield from _audit(shared)
        return
    path = sqlite_path(url)
    if not path.exists():
        raise StoreRefused(f"{path} is not there: name the store to verify")
    store = SqliteStore(path, RuleSet())
    try:
        yield from _audit(store)
    finally:
        store.file.close()


def _audit(store: Store) -> Iterator[str]:
    for name in store.names():
        try:
            yield from audit(store.run(*name))
        except StoreDamaged as error:
            yield str(error)


def backup(url: str, target: Path, progress: Callable[[int, int], None]) -> int:
    """Copy a store, in use or not; return the size of the copy in bytes.

    Raises:
        ConfigurationError: the URL names no store that is kept.
        StoreRefused: it cannot be copied there.
    """
    if is_postgres(url):
        raise ConfigurationError(
            "a PostgreSQL database is backed up by its own tools: see docs/postgresql.md"
        )
    return copying.backup(sqlite_path(url), target, progress)


def _postgres() -> ModuleType:
    """Return what opens the shared store; its driver is an extra, which few need."""
    return import_module("rankfold_service.store.postgres.opening")
