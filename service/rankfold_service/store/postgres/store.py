"""The shared store: any number of aggregators decide about reports in one PostgreSQL database.

A report is decided about and folded by the same core as in every store, in the books of its
rank, which its transaction holds: two aggregators wait for each other only over one rank. The
run itself is held only by a report that teaches something new about it. A commit takes all
reports that wait, in two round trips: one holds the books and fetches what has changed since
they were last seen here, one writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from rankfold import books
from rankfold.errors import RankfoldError, RequestError, StoreDamaged, StoreUnavailable
from rankfold.facts import Facts
from rankfold.ledger import KEPT_ITERATIONS, Ledger
from rankfold.rules import RuleSet
from rankfold.wire import Receipt, Report
from rankfold_service.store import Arrival, Name, no_run
from rankfold_service.store.pack import pack_facts
from rankfold_service.store.postgres import statements as sql
from rankfold_service.store.postgres.database import Connection, Database, columns
from rankfold_service.store.postgres.holding import Books, Key, name_of
from rankfold_service.store.postgres.known import (
    KnownBook,
    KnownRun,
    KnownRuns,
    MustHold,
    Old,
)
from rankfold_service.store.postgres.reading import GatheredShelf, News, fetch_news
from rankfold_service.store.postgres.schema import migrations, prepare
from rankfold_service.store.record import Entry, pack

T = TypeVar("T")

_log = logging.getLogger("rankfold.store")


class PostgresStore:
    """Keeps runs in a PostgreSQL database that other aggregators may use at the same time.

    Args:
        database: where; this store closes it.
        rules: the rules in force.
        keep_iterations: of how many of the newest iterations of each rank the contents stay
            known; see `rankfold.books.take`.

    Raises:
        StoreRefused: the database must not be used; the message says what to do.
        StoreUnavailable: it cannot be reached.
    """

    def __init__(
        self, database: Database, rules: RuleSet, *, keep_iterations: int = KEPT_ITERATIONS
    ) -> None:
        self.database = database
        self.rules = rules
        self.keep_iterations = keep_iterations
        self._runs = KnownRuns(rules)
        self._books = Books(database, self._runs)
        database.connected = self._runs.clear
        self._old: list[Old] = []
        # The runs that were read last, and the moment that they are known of.
        self._ahead: dict[Name, int | None] = {}
        prepare(database, migrations())

    # -- writing ---------------------------------------------------------------------------

    def ingest(self, arrivals: Sequence[Arrival]) -> list[Receipt | RankfoldError]:
        """See `Store.ingest`."""
        held: frozenset[Name] = frozenset()
        while True:
            try:
                return self._commit(partial(self._take, arrivals, held))
            except MustHold as more:
                held |= more.names

    def finish(self, project: str, run: str, attempt: int) -> None:
        """See `Store.finish`."""

        def take() -> None:
            known = self._hold(project, run)
            self._runs.change([known.name])
            known.facts.finish(attempt, run)
            self._save_runs([known])

        self._commit(take)

    def delete(self, project: str, run: str) -> None:
        """See `Store.delete`."""

        def forget(connection: Connection) -> None:
            row = connection.execute(sql.HOLD_RUN.encode(), [project, run]).fetchone()
            if row is None:
                raise no_run(project, run)
            for statement in sql.DELETE_RUN:
                connection.execute(statement.encode(), [row[0]])

        self._runs.drop((project, run))
        self.database.change(forget)

    def probe(self) -> None:
        """See `Store.probe`."""
        self.database.write(lambda: [self.database.send(statement) for statement in sql.PROBE])

    def _commit(self, function: Callable[[], T]) -> T:
        """Run a function in a transaction; what is remembered changes only if it commits."""

        def attempt() -> T:
            self._runs.drop_changes()
            return function()

        try:
            result = self.database.write(attempt)
        except BaseException:
            self._runs.drop_changes()
            raise
        self._runs.keep_changes()
        return result

    def _take(
        self, arrivals: Sequence[Arrival], held: Collection[Name]
    ) -> list[Receipt | RankfoldError]:
        """Decide about reports; `held` are the runs to hold, because there is news about them."""
        self._hold_runs(held)
        names = {name_of(a.report) for a in arrivals}
        self._find_runs([name for name in names if self._runs.get(name) is None])
        news = {name_of(a.report) for a in arrivals if self._is_news(a.report)}.difference(held)
        if news:
            raise MustHold(news)
        self._books.hold([a.report for a in arrivals], held)
        outcomes = [self._outcome(arrival) for arrival in arrivals]
        self._save(held)
        return outcomes

    def _is_news(self, report: Report) -> bool:
        run = self._runs.get(name_of(report))
        return run is None or not run.facts.know(report, min(report.iterations(), default=None))

    def _hold_runs(self, names: Collection[Name]) -> None:
        if names:
            nothing = pack_facts(Facts(self.rules))
            self._remember(self.database.rows(sql.HOLD_RUNS, nothing, *columns([*names], 2)))

    def _find_runs(self, names: Collection[Name]) -> None:
        if names:
            self._remember(self.database.rows(sql.FIND_RUNS, *columns([*names], 2)))

    def _remember(self, rows: Iterable[tuple[str, str, int, int, bytes]]) -> None:
        for project, name, id_, version, facts in rows:
            self._runs.know((project, name), id_, version, facts)

    def _outcome(self, arrival: Arrival) -> Receipt | RankfoldError:
        report = arrival.report
        run = self._runs[name_of(report)]
        ranks, keep = books.ranks_of(report), self.keep_iterations
        ledgers = run.ledgers(ranks)
        try:
            touched = books.check(run.facts, ledgers, report, keep)
        except (RequestError, StoreDamaged) as error:
            return error
        receipt = books.take(run.facts, ledgers, report, touched, arrival.now, keep)
        for rank in ranks:
            part = books.part_of(report, rank)
            record = pack(Entry("report", arrival.now, self.keep_iterations, part))
            run.books[rank].records.append(record)
        return receipt

    def _save(self, held: Collection[Name]) -> None:
        """Write everything that changed."""
        due: list[tuple[Key, KnownBook]] = []
        journal: list[tuple[int, int, int, bytes]] = []
        for run in self._runs.changing:
            for rank, book in run.books.items():
                if book.records:
                    run.written[rank] = book.is_due
                    if book.is_due:
                        due.append(((run.id, rank), book))
                    else:
                        records = b"".join(book.records)
                        journal.append((run.id, rank, book.version + 1, records))
        if journal:
            added = columns(journal, 4)
            self.database.send(sql.JOURNAL[0], *added)
            self.database.send(sql.JOURNAL[1], *added[:3])
        if due:
            self._save_books(due)
        self._save_runs([self._runs[name] for name in held])

    def _save_books(self, due: Sequence[tuple[Key, KnownBook]]) -> None:
        """Write the tables of books, in place of their journal."""
        heads = [(*key, book.version + 1, book.head()) for key, book in due]
        pages = [(*key, *page) for key, book in due for page in book.changes()]
        contents = [(*page[:4], page[5]) for page in pages if page[5]]
        self.database.send(sql.SAVE_BOOKS[0], *columns(heads, 4))
        self.database.send(sql.SAVE_BOOKS[1], *columns([key for key, _ in due], 2))
        self.database.send(sql.SAVE_PAGES, *columns([page[:5] for page in pages], 5))
        self.database.send(sql.SAVE_CONTENTS, *columns(contents, 5))

    def _save_runs(self, runs: Iterable[KnownRun]) -> None:
        """Write what was learned of runs; one of which no report was good is not there."""
        rows = []
        for run in runs:
            if run.facts.launches:
                run.learned = True
                rows.append((run.id, pack_facts(run.facts)))
            else:
                for statement in sql.DELETE_RUN:
                    self.database.send(statement, run.id)
        if rows:
            self.database.send(sql.SAVE_RUNS, *columns(rows, 2))

    def _hold(self, project: str, run: str) -> KnownRun:
        rows = self.database.rows(sql.HOLD_RUN, project, run)
        if not rows:
            raise no_run(project, run)
        return self._runs.know((project, run), *rows[0])

    # -- reading ---------------------------------------------------------------------------

    def names(self) -> list[Name]:
        """See `Store.names`."""
        return [(p, n) for p, n in self.database.read(lambda: self.database.rows(sql.NAMES))]

    def versions(self) -> dict[Name, Hashable]:
        """See `Store.versions`."""
        rows = self.database.read(lambda: self.database.rows(sql.VERSIONS))
        return {(project, name): tuple(version) for project, name, *version in rows}

    def read_ahead(self, names: Sequence[Name]) -> None:
        """See `Store.read_ahead`: all of them are read in one round trip, as of one moment."""
        self._read(names)

    def run(self, project: str, run: str) -> Ledger:
        """See `Store.run`; all of it is of one moment."""
        name = (project, run)
        if not self._is_read(name):
            for error in self._read([name]):
                raise error
            self._ahead.clear()
        known = self._runs.get(name)
        if known is None:
            raise no_run(project, run)
        if known.gathered is None:
            try:
                known.gathered = self._gather(known)
            except BaseException:
                self._runs.drop(name)
                raise
            self._old += known.newly_old(known.gathered, self.keep_iterations)
        return known.gathered

    def _is_read(self, name: Name) -> bool:
        """Whether a run was read ahead, which is of use once, and as of the present moment."""
        moment, at = self.database.moment, self._ahead.pop(name, None)
        return moment is not None and moment == at and self._runs.get(name) is not None

    def _read(self, names: Sequence[Name]) -> list[StoreDamaged]:
        """Bring what is known of runs up to one moment; return why that failed for some."""
        found = self.database.read(lambda: fetch_news(self.database, names, self._runs))
        self._ahead = dict.fromkeys(found, self.database.moment)
        for name in names:
            if name not in found:
                self._runs.drop(name)
        failed: list[StoreDamaged] = []
        for name, news in found.items():
            try:
                self._renew(name, news)
            except BaseException as error:
                self._runs.drop(name)  # half of the news may have been entered
                if not isinstance(error, StoreDamaged):
                    raise
                failed.append(error)
        self._runs.bound()
        return failed

    def _renew(self, name: Name, news: News) -> None:
        """Bring what is known of a run up to date."""
        known = self._runs.know(name, news.id, news.version, news.facts)
        for rank, saved, head in news.heads:
            self._books.open(known, rank, saved, head)
        for rank, version, records in news.journal:
            known.books[rank].enter(version, records)
        if news.heads:
            known.gathered = None

    def _gather(self, run: KnownRun) -> Ledger:
        ledgers = run.ledgers(sorted(run.books))
        for ledger in ledgers.values():
            ledger.heed_cuts()
        shelf = GatheredShelf(self.database, run)
        return books.gather(*run.name, run.facts, ledgers, shelf)

    def size(self, beyond: int = 0) -> int:
        """See `Store.size`: tables and their indexes."""
        ((size,),) = self.database.read(lambda: self.database.rows(sql.SIZE))
        return int(size)

    def maintain(self) -> None:
        """See `Store.maintain`: ends the moment that was read, and drops what it showed as old."""
        self.database.end_reading()
        old, self._old = self._old, []
        if old:
            try:
                self.database.write(lambda: self.database.send(sql.FOLD_AWAY, *columns(old, 4)))
            except StoreUnavailable as error:
                self._old = old
                _log.warning("contents could not be folded away: %s", error)

    def close(self) -> None:
        """See `Store.close`."""
        self.database.close()
