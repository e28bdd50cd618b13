"""Moves the runs of another store into the shared one, each whole, and compares what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from rankfold.audit import compare
from rankfold.books import divide
from rankfold.errors import NotFound, StoreRefused
from rankfold.ledger import Ledger
from rankfold.page import Page
from rankfold_service.store import Name, Store
from rankfold_service.store.apart import pack_apart
from rankfold_service.store.moved import Moved
from rankfold_service.store.pack import pack_book, pack_facts
from rankfold_service.store.postgres import statements as sql
from rankfold_service.store.postgres.database import Connection, columns
from rankfold_service.store.postgres.store import PostgresStore

# So many pages are sent at once.
PAGES_AT_ONCE = 2000


def transfer(source: Store, target: PostgresStore) -> Iterator[Moved]:
    """Copy every run in a transaction of its own, unless it is there, and compare both.

    Raises:
        StoreRefused: a run began to report to the target at this moment.
        StoreUnavailable: the target cannot be written.
    """
    names = source.names()
    for number, name in enumerate(names, 1):
        ledger = source.run(*name)
        was_there = _is_there(target, name)
        if not was_there:
            target.database.change(partial(_copy, ledger))
        different = next(compare(ledger, target.run(*name)), None)
        attempts = ledger.chosen("all")
        ranks = {rank for attempt in attempts for rank in attempt.reporters}
        iterations = sum(len(attempt.paged) for attempt in attempts)
        yield Moved(name, len(ranks), iterations, was_there, different, number, len(names))


def _is_there(target: PostgresStore, name: Name) -> bool:
    try:
        target.run(*name)
    except NotFound:
        return False
    return True


def _copy(ledger: Ledger, connection: Connection) -> None:
    """Write a run that is not there."""
    facts = pack_facts(ledger.facts)
    holding = [facts, [ledger.project], [ledger.run]]
    ((*_, run_id, version, _),) = connection.execute(sql.HOLD_RUNS.encode(), holding).fetchall()
    if version:
        raise StoreRefused(f"run {ledger.run!r} has just begun to report there: stop its trainers")
    pages = _Pages(int(run_id), connection)
    heads = [
        (run_id, rank, 1, pack_book(book)) for rank, book in divide(ledger, pages.shelf_of).items()
    ]
    pages.flush()
    keys = [head[:2] for head in heads]
    connection.execute(sql.ADD_BOOKS.encode(), columns(keys, 2))
    connection.execute(sql.SAVE_BOOKS[0].encode(), columns(heads, 4))
    connection.execute(sql.SAVE_RUNS.encode(), [[run_id], [facts]])


class _Pages:
    """Sends the pages of a run as they come."""

    def __init__(self, run_id: int, connection: Connection) -> None:
        self._run_id = run_id
        self._connection = connection
        self._rows: list[tuple[int, int, int, int, bytes, bytes]] = []

    def shelf_of(self, rank: int) -> _Shelf:
        """Return where the pages of a rank go."""
        return _Shelf(partial(self.add, rank))

    def add(self, rank: int, attempt: int, iteration: int, page: Page) -> None:
        """Send a page, together with others."""
        self._rows.append((self._run_id, rank, attempt, iteration, *pack_apart(page)))
        if len(self._rows) >= PAGES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Send what waits."""
        folded = [row[:5] for row in self._rows]
        contents = [(*row[:4], row[5]) for row in self._rows if row[5]]
        self._connection.execute(sql.SAVE_PAGES.encode(), columns(folded, 5))
        self._connection.execute(sql.SAVE_CONTENTS.encode(), columns(contents, 5))
        self._rows.clear()


class _Shelf:
    """A `rankfold.attempt.Shelf` that pages go to and do not come back from."""

    def __init__(self, put: Callable[[int, int, Page], None]) -> None:
        self._put = put

    def load(self, attempt: int, iteration: int) -> Page:
        """See `Shelf.load`: each page is put here once, when it is whole."""
        raise KeyError((attempt, iteration))

    def put(self, attempt: int, iteration: int, page: Page) -> None:
        """See `Shelf.put`."""
        self._put(attempt, iteration, page)
