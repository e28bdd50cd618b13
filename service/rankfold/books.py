"""The books of a run kept rank by rank, and the ledger that readers see of them together.

Where several aggregators share a store, each report is decided about in the books of its rank
alone, so that no two ranks wait for each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from itertools import pairwise

from rankfold.attempt import Attempt, Shelf
from rankfold.facts import Facts
from rankfold.fold import largest
from rankfold.iterations import Iterations
from rankfold.ledger import KEPT_CONFLICTS, Ledger
from rankfold.page import GLOBAL, Page
from rankfold.scope import Scope
from rankfold.wire import Receipt, Report

Books = Mapping[int, Ledger]


def ranks_of(report: Report) -> list[int]:
    """Return in whose books a report is entered, `GLOBAL` for what belongs to no rank."""
    return [report.rank, GLOBAL] if any(report.scalars.is_global) else [report.rank]


def part_of(report: Report, rank: int) -> Report:
    """Return what the books of one rank take from a report, as short as that may be."""
    if rank != GLOBAL:
        return report
    scalars = report.scalars.only_global()
    return Report(report.run, report.rank, report.project, report.attempt, scalars=scalars)


def apply(facts: Facts, books: Books, report: Report, now: float, keep: int) -> Receipt:
    """Take a whole report, or nothing of it: `check` and `take`."""
    touched = check(facts, books, report, keep)
    return take(facts, books, report, touched, now, keep)


def check(facts: Facts, books: Books, report: Report, keep: int) -> set[int]:
    """Find out whether a report can be taken, as `Ledger.check` does for a whole run.

    Args:
        facts: what is known of the run as a whole.
        books: those of `ranks_of` the report at least; they share the facts.
        report: valid in itself; what contradicts the run is found here.
        keep: of how many of a rank's newest iterations the contents stay known.

    Returns:
        the iterations of which it speaks.

    Raises:
        Inconsistent: it contradicts the attempt's world size or the run's names.
        TooLarge: the run would have too many names.
    """
    facts.check(report)
    touched = report.iterations()
    for rank in ranks_of(report):
        books[rank].open_pages(report.attempt, touched, keep)
    return touched


def take(
    facts: Facts, books: Books, report: Report, touched: set[int], now: float, keep: int
) -> Receipt:
    """Take a report that was checked; `now` is when it arrived, in seconds since the epoch."""
    if facts.learn(report, min(touched, default=None), now):
        for book in books.values():
            book.heed_cuts()
    parts = [books[rank].enter(report, touched, now, keep) for rank in ranks_of(report)]
    return Receipt(*(sum(counts) for counts in zip(*map(astuple, parts), strict=True)))


def gather(project: str, run: str, facts: Facts, books: Books, shelf: Shelf) -> Ledger:
    """Return the ledger of a run, for reading.

    Args:
        project: the run's project.
        run: its name.
        facts: what is known of it as a whole; the books have heeded its cuts.
        books: by rank, `GLOBAL` among them.
        shelf: has the pages of all ranks as one.
    """
    ledger = Ledger(project, run, facts, shelf=shelf)
    for number in facts.launches:
        parts = [book.attempts[number] for book in books.values() if number in book.attempts]
        attempt = ledger.attempts[number] = ledger.new_attempt(number)
        _fill(attempt, parts)
        attempt.cut = facts.cut(number)
        if attempt.cut is not None:
            attempt.remaining = _united(part.effective for part in parts)
    notes = sorted(note for book in books.values() for note in book.notes)
    ledger.notes = notes[:KEPT_CONFLICTS]
    return ledger


def _fill(attempt: Attempt, parts: Sequence[Attempt]) -> None:
    for part in parts:
        attempt.reporters.update(part.reporters)
        attempt.conflicts += part.conflicts
        attempt.last_commit = largest(attempt.last_commit, part.last_commit)
    attempt.everything = _united(part.everything for part in parts)
    attempt.paged = Iterations.union(part.paged for part in parts)
    attempt.covered = Iterations.union(part.covered for part in parts)
    attempt.worked = Iterations.union(part.worked for part in parts)
    attempt.seen = {
        series: Iterations.union(part.seen[series] for part in parts if series in part.seen)
        for series in sorted({series for part in parts for series in part.seen})
    }
    attempt.incomplete = set(_incomplete(attempt, parts))


def _united(scopes: Iterable[Scope]) -> Scope:
    found = Scope()
    for scope in scopes:
        found.table.add(scope.table)
        found.ranks.update(scope.ranks)
    return found


def _incomplete(attempt: Attempt, parts: Sequence[Attempt]) -> Iterator[int]:
    """Yield the covered iterations that are not complete over all ranks.

    A rank is done with an iteration once it has committed it and reported all that it committed
    of the series that it reported. An iteration is complete when each expected rank is done and
    those that worked in it all reported the same series.
    """
    # How the counts change at an iteration: of ranks that are done, that worked, and that
    # reported each of the series. Sets are runs, so that history costs nothing.
    columns = {series: 2 + at for at, series in enumerate(attempt.seen)}
    changes: dict[int, list[int]] = defaultdict(lambda: [0] * (2 + len(columns)))

    def count(numbers: Iterations, column: int, by: int = 1) -> None:
        for first, last in numbers.runs():
            changes[first][column] += by
            changes[last + 1][column] -= by

    for part in parts:
        count(part.covered, 0)
        count(Iterations(sorted(part.incomplete)), 0, -1)
        count(part.worked, 1)
        for series, seen in part.seen.items():
            count(seen, columns[series])
    counts = [0] * (2 + len(columns))
    for iteration, end in pairwise(sorted(changes)):
        counts = [a + b for a, b in zip(counts, changes[iteration], strict=True)]
        done, worked, *reported = counts
        if done != attempt.expected or any(n not in (0, worked) for n in reported):
            yield from attempt.covered.between(iteration, end - 1)


def divide(ledger: Ledger, shelf_of: Callable[[int], Shelf] | None = None) -> dict[int, Ledger]:
    """Return the books of each rank of a run, `GLOBAL` among them.

    Args:
        ledger: of the whole run; it shares its facts with the books, and what its pages hold.
        shelf_of: where the pages of a rank are put; without it they stay in memory.
    """
    books: dict[int, Ledger] = {}

    def book_of(rank: int, number: int) -> Attempt:
        if rank not in books:
            shelf = shelf_of(rank) if shelf_of else None
            books[rank] = Ledger(ledger.project, ledger.run, ledger.facts, of=rank, shelf=shelf)
        return books[rank].open_attempt(number)

    for number, attempt in ledger.attempts.items():
        for rank, reporter in attempt.reporters.items():
            book_of(rank, number).reporters[rank] = reporter
        for iteration in attempt.paged:
            page = attempt.page(iteration)
            for rank in page.speakers():
                part = book_of(rank, number)
                part.receive(iteration, page.of_rank(rank))
                part.shelve(iteration)
        for book in books.values():
            if number in book.attempts:
                book.attempts[number].horizon = attempt.horizon
    for note in ledger.notes:
        books[note.conflict.rank].notes.append(note)
    return books


def gather_pages(pages: Iterable[Page]) -> Page:
    """Return one iteration's pages of several ranks as one page."""
    found = Page()
    for page in pages:
        found.absorb(page)
    return found
