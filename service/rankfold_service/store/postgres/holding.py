"""Holds books of ranks in a transaction, and brings what is remembered of them up to date."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rankfold import books
from rankfold.wire import Report
from rankfold_service.store import Name
from rankfold_service.store.postgres import statements as sql
from rankfold_service.store.postgres.database import Cursor, Database, columns
from rankfold_service.store.postgres.known import KnownBook, KnownRun, KnownRuns, MustHold, Packed
from rankfold_service.store.shelf import Place

# (id of a run, rank)
Key = tuple[int, int]

# How many iterations of a rank come with one that is asked for.
READ_AHEAD = 64
_NEVER_SEEN = -1


class Books:
    """The way from the books in the database to those that are remembered.

    Args:
        database: in the midst of a transaction, or of a moment that is read.
        runs: what is remembered.
    """

    def __init__(self, database: Database, runs: KnownRuns) -> None:
        self._database = database
        self._runs = runs

    def hold(self, reports: Iterable[Report], held: Collection[Name]) -> None:
        """Hold the books of all reports and bring what is remembered of them up to date.

        Args:
            reports: of runs that are remembered.
            held: the runs that are held, whose books may be made.

        Raises:
            MustHold: books are not there, and their runs are not held.
            StoreDamaged: what the database has is damaged.
        """
        wanted: dict[Key, KnownRun] = {}
        places: set[tuple[int, int, int, int]] = set()
        for report in reports:
            run = self._runs[name_of(report)]
            for rank in books.ranks_of(report):
                wanted[run.id, rank] = run
                places.update((run.id, rank, report.attempt, i) for i in report.iterations())
        new = [key for key, run in wanted.items() if run.name in held and key[1] not in run.books]
        if new:
            self._database.send(sql.ADD_BOOKS, *columns(new, 2))
        seen = [(*key, _version(run.books.get(key[1]))) for key, run in wanted.items()]
        heads = self._database.send(sql.HOLD_BOOKS, *columns(seen, 3))
        runs = {run.id: run for run in wanted.values()}
        versions = [(run.id, run.version) for run in runs.values()]
        news = self._database.send(sql.RENEW_RUNS, *columns(versions, 2))
        journal = self._database.send(sql.FETCH_JOURNAL, *columns(seen, 3))
        pages = self._fetch_pages(places, wanted)
        found = heads.fetchall()
        if len(found) < len(wanted):
            # A rank that is new, or a run that was deleted meanwhile.
            missing = wanted.keys() - {(row[0], row[1]) for row in found}
            names = {wanted[key].name for key in missing}
            for name in names:
                self._runs.drop(name)
            raise MustHold(names)
        self._runs.change(run.name for run in wanted.values())
        for run_id, version, facts in news.fetchall():
            runs[run_id].renew(version, facts)
        for run_id, rank, saved, head in found:
            self.open(wanted[run_id, rank], rank, saved, head)
        for run_id, rank, attempt, iteration, *packed in pages.fetchall():
            shelf = wanted[run_id, rank].books[rank].shelf
            shelf.fetched[attempt, iteration] = (packed[0], packed[1])
        for run_id, rank, version, records in journal.fetchall():
            wanted[run_id, rank].books[rank].enter(version, records)
        for (_, rank), run in wanted.items():
            run.books[rank].ledger.heed_cuts()

    def _fetch_pages(
        self, places: Iterable[tuple[int, int, int, int]], runs: dict[Key, KnownRun]
    ) -> Cursor:
        """Ask for the pages that are not here, and for those of books that others wrote to."""
        rows = []
        for run_id, rank, attempt, iteration in places:
            book = runs[run_id, rank].books.get(rank)
            if book is not None and book.lacks(attempt, iteration):
                book = None
            rows.append((run_id, rank, attempt, iteration, _version(book)))
        return self._database.send(sql.FETCH_PAGES, *columns(rows, 5))

    def open(self, run: KnownRun, rank: int, saved: int, head: bytes | None) -> None:
        """Take the head of a book where the database sent it: what was known is older.

        Raises:
            StoreDamaged: the head is damaged.
        """
        if head is not None:
            run.open_book(rank, saved, self._pages_of_rank).fill(head)

    def _pages_of_rank(self, run: int, rank: int, attempt: int, first: int) -> dict[Place, Packed]:
        """Read what a rank reported of an iteration and of those that follow it."""
        last = first + READ_AHEAD - 1
        rows = self._database.rows(sql.PAGES_OF_RANK, run, attempt, rank, first, last)
        return {(attempt, iteration): (page[0], page[1]) for iteration, *page in rows}


def name_of(report: Report) -> Name:
    """Return the name of the run that a report is of."""
    return report.project, report.run


def _version(book: KnownBook | None) -> int:
    return _NEVER_SEEN if book is None else book.version
