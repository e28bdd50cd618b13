"""The pages of all ranks of a run, read from the shared store as one."""

from __future__ import annotations

from collections import defaultdict

from rankfold.books import gather_pages
from rankfold.page import Page
from rankfold_service.store import Name
from rankfold_service.store.postgres.database import Database
from rankfold_service.store.postgres.statements import PAGES
from rankfold_service.store.shelf import page_of

# How many pages of ranks come at once where iterations are read one after the other.
MOST_AT_ONCE = 4096


class GatheredShelf:
    """A `rankfold.attempt.Shelf` for readers.

    Args:
        database: in the midst of reading the moment that the ledger is of.
        name: of the run.
        run: its id.
        books: how many books it has.
    """

    def __init__(self, database: Database, name: Name, run: int, books: int) -> None:
        self._database = database
        self._name = name
        self._run = run
        self._ahead = max(1, MOST_AT_ONCE // max(1, books))
        self._pages: dict[tuple[int, int], Page] = {}
        self._next = (-1, -1)

    def load(self, attempt: int, iteration: int) -> Page:
        """See `Shelf.load`.

        Raises:
            StoreUnavailable: the pages cannot be read, or are damaged.
        """
        if (attempt, iteration) not in self._pages:
            ahead = self._ahead if (attempt, iteration) == self._next else 1
            self._pages = self._read(attempt, iteration, iteration + ahead - 1)
        self._next = (attempt, iteration + 1)
        return self._pages[attempt, iteration]

    def put(self, attempt: int, iteration: int, page: Page) -> None:
        """See `Shelf.put`: nobody does that here."""
        raise TypeError("what is gathered is for reading")

    def _read(self, attempt: int, first: int, last: int) -> dict[tuple[int, int], Page]:
        found: dict[int, list[Page]] = defaultdict(list)
        for iteration, body in self._database.rows(PAGES, self._run, attempt, first, last):
            found[iteration].append(page_of(body, f"run {self._name[1]!r}", attempt, iteration))
        return {(attempt, iteration): gather_pages(pages) for iteration, pages in found.items()}
