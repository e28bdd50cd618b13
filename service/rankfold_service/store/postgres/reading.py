"""What readers fetch of a run from the shared store: its news, and its ranks' pages as one."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from rankfold.books import gather_pages
from rankfold.page import Page
from rankfold_service.store import Name
from rankfold_service.store.postgres import statements as sql
from rankfold_service.store.postgres.database import Database, Row, columns
from rankfold_service.store.postgres.known import KnownRun
from rankfold_service.store.shelf import Place

# How many pages of ranks come at once where iterations are read one after the other.
MOST_AT_ONCE = 4096


class News(NamedTuple):
    """What of a run is newer than what is known of it, as rows.

    Attributes:
        run: its id, version and facts; nothing where there is no such run.
        heads: of each rank with newer books the version of its tables, and the head if it is new.
        journal: rank, version and records, by these.
    """

    run: list[Row]
    heads: list[Row]
    journal: list[Row]


def fetch_news(database: Database, name: Name, known: KnownRun | None) -> News:
    """Fetch what of a run is newer than what is known of it, in one round trip."""
    seen = [(rank, book.version) for rank, book in known.books.items()] if known else []
    run = database.send(sql.READ_RUN, *name)
    heads = database.send(sql.READ_BOOKS, *columns(seen, 2), *name)
    journal = database.send(sql.READ_JOURNAL, *columns(seen, 2), *name)
    return News(run.fetchall(), heads.fetchall(), journal.fetchall())


class GatheredShelf:
    """A `rankfold.attempt.Shelf` for readers.

    Args:
        database: in the midst of reading the moment that the run's books are of.
        run: the run; what its books have in memory is newer than the tables.
    """

    def __init__(self, database: Database, run: KnownRun) -> None:
        self._database = database
        self._run = run
        self._ahead = max(1, MOST_AT_ONCE // max(1, len(run.books)))
        self._pages: dict[Place, Page] = {}
        self._next = (-1, -1)

    def load(self, attempt: int, iteration: int) -> Page:
        """See `Shelf.load`.

        Raises:
            StoreUnavailable: the pages cannot be read, or are damaged.
        """
        if (attempt, iteration) not in self._pages:
            ahead = self._ahead if (attempt, iteration) == self._next else 1
            self._pages = self._read(attempt, range(iteration, iteration + ahead))
        self._next = (attempt, iteration + 1)
        return self._pages[attempt, iteration]

    def put(self, attempt: int, iteration: int, page: Page) -> NoReturn:
        """See `Shelf.put`: nobody does that here."""
        raise TypeError("what is gathered is for reading")

    def _read(self, attempt: int, iterations: range) -> dict[Place, Page]:
        known = self._run.books
        bounds = (iterations[0], iterations[-1])
        for rank, at, *page in self._database.rows(sql.PAGES, self._run.id, attempt, *bounds):
            known[rank].shelf.fetched[attempt, at] = (page[0], page[1])
        parts = [book.ledger.attempts.get(attempt) for book in known.values()]
        found = {}
        for iteration in iterations:
            pages = [part.page(iteration) for part in parts if part and iteration in part.paged]
            if pages:
                found[attempt, iteration] = gather_pages(pages)
        for book in known.values():
            book.shelf.fetched.clear()
        return found
