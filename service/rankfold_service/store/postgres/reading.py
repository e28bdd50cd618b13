"""What readers fetch of a run from the shared store: its news, and its ranks' pages as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from rankfold.books import gather_pages
from rankfold.page import Page
from rankfold_service.store import Name
from rankfold_service.store.postgres import statements as sql
from rankfold_service.store.postgres.database import Database, Row, columns
from rankfold_service.store.postgres.known import KnownRun, KnownRuns
from rankfold_service.store.shelf import Place

# How many pages of ranks come at once where iterations are read one after the other.
MOST_AT_ONCE = 4096


class News(NamedTuple):
    """What of a run is newer than what is known of it.

    Attributes:
        id: what the database calls the run.
        version: of its facts.
        facts: what they are.
        heads: for each rank with newer books itself, the version of its tables, and the head if
            that is new.
        journal: rank, version and records, by these.
    """

    id: int
    version: int
    facts: bytes
    heads: list[Row]
    journal: list[Row]


def fetch_news(database: Database, names: Sequence[Name], known: KnownRuns) -> dict[Name, News]:
    """Fetch what is newer of those runs that there are, in one round trip."""
    runs = [run for name in names if (run := known.get(name)) is not None]
    seen = [(run.id, rank, book.version) for run in runs for rank, book in run.books.items()]
    asked = (*columns(names, 2), *columns(seen, 3))
    found = database.send(sql.FIND_RUNS, *asked[:2])
    heads = database.send(sql.READ_BOOKS, *asked)
    journal = database.send(sql.READ_JOURNAL, *asked)
    news = {
        id_: ((project, name), News(id_, version, facts, [], []))
        for project, name, id_, version, facts in found.fetchall()
    }
    for id_, *head in heads.fetchall():
        news[id_][1].heads.append(tuple(head))
    for id_, *entry in journal.fetchall():
        news[id_][1].journal.append(tuple(entry))
    return dict(news.values())


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
