"""Every kind of store, opened where a test has room for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pytest

from rankfold.errors import RankfoldError
from rankfold.ledger import Ledger
from rankfold.rules import RuleSet
from rankfold.wire import Receipt
from rankfold_service.store import Arrival, Name, Store
from rankfold_service.store.memory import MemoryStore
from rankfold_service.store.postgres.opening import open_store
from rankfold_service.store.postgres.store import PostgresStore
from rankfold_service.store.sqlite import SqliteStore
from support.postgres import Postgres, needs_postgres

RULES = RuleSet()


class Ground(NamedTuple):
    """Where a store may be: in a folder, or in a database of its own."""

    folder: Path
    url: str


class Replicas:
    """Several aggregators' stores on one database: each call goes to the next of them."""

    def __init__(self, stores: Sequence[PostgresStore]) -> None:
        self.stores = stores
        self._turns = cycle(stores)
        self.keep_iterations = stores[0].keep_iterations

    @property
    def next(self) -> PostgresStore:
        """The store that takes the next call."""
        return next(self._turns)

    def ingest(self, arrivals: Sequence[Arrival]) -> list[Receipt | RankfoldError]:
        """See `Store.ingest`."""
        return self.next.ingest(arrivals)

    def finish(self, project: str, run: str, attempt: int) -> None:
        """See `Store.finish`."""
        self.next.finish(project, run, attempt)

    def delete(self, project: str, run: str) -> None:
        """See `Store.delete`."""
        self.next.delete(project, run)

    def names(self) -> list[Name]:
        """See `Store.names`."""
        return self.next.names()

    def versions(self) -> dict[Name, Hashable]:
        """See `Store.versions`."""
        return self.next.versions()

    def read_ahead(self, names: Sequence[Name]) -> None:
        """See `Store.read_ahead`; the next to be asked is another."""
        self.next.read_ahead(names)

    def run(self, project: str, run: str) -> Ledger:
        """See `Store.run`."""
        return self.next.run(project, run)

    def size(self, beyond: int = 0) -> int:
        """See `Store.size`."""
        return self.next.size(beyond)

    def probe(self) -> None:
        """See `Store.probe`."""
        self.next.probe()

    def maintain(self) -> None:
        """See `Store.maintain`."""
        self.next.maintain()

    def close(self) -> None:
        """See `Store.close`."""
        for store in self.stores:
            store.close()


def memory(_: Ground) -> Store:
    """Open the reference store."""
    return MemoryStore(RULES)


def sqlite(ground: Ground) -> SqliteStore:
    """Open the embedded store as it is by default."""
    return SqliteStore(ground.folder / "store.db", RULES)


def sqlite_busy(ground: Ground) -> SqliteStore:
    """Open the embedded store so that it tidies at every turn and keeps next to nothing."""
    return SqliteStore(ground.folder / "store.db", RULES, checkpoint_bytes=1, keep_iterations=1)


def postgres(ground: Ground) -> PostgresStore:
    """Open the shared store of one aggregator."""
    return open_store(ground.url, RULES)


def replicas(ground: Ground) -> Replicas:
    """Open the shared store of three aggregators that take turns."""
    return Replicas([open_store(ground.url, RULES) for _ in range(3)])


Opener = Callable[[Ground], Store]
SHARED = [pytest.param(each, marks=needs_postgres) for each in (postgres, replicas)]
OPENERS = [memory, sqlite, sqlite_busy, *SHARED]
# Those whose restart is known to change nothing; what they fold away, they fold as the reference.
DURABLE = [sqlite, sqlite_busy, *SHARED]


def new_ground(request: pytest.FixtureRequest, opener: Opener, folder: Path) -> Ground:
    """Return room for a store, with an empty database where the opener needs one."""
    if opener not in (postgres, replicas):
        return Ground(folder, "")
    server: Postgres = request.getfixturevalue("postgres")
    return Ground(folder, server.url(server.create_database()))


def reopened(store: Store, opener: Opener, ground: Ground, *, tidy: bool) -> Store:
    """Close a store, or leave its files as a killed process would, and open it again."""
    with closing(store.file if isinstance(store, SqliteStore) and not tidy else store):
        pass
    return opener(ground)
