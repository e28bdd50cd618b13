"""What the answers are read from: ranges and pages of a run's iterations."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice

from rankfold.attempt import Attempt
from rankfold.coverage import Selection, judged_attempts
from rankfold.fold import Fold, Table
from rankfold.ledger import Ledger


@dataclass(frozen=True, slots=True)
class IterationFolds:
    """One iteration, folded over ranks or of one rank."""

    iteration: int
    complete: bool
    table: Table


def iterations(
    ledger: Ledger, selection: Selection, rank: int | None, limit: int
) -> list[IterationFolds]:
    """Return the first `limit` iterations of a selection, ascending."""
    streams = [_pages(attempt, selection, last) for attempt, last in _attempts(ledger, selection)]
    merged = heapq.merge(*streams, key=lambda item: item[0])
    grouped = groupby(merged, key=lambda item: item[0])
    return [
        _folded(iteration, [attempt for _, attempt in items], rank)
        for iteration, items in islice(grouped, limit)
    ]


def range_totals(ledger: Ledger, selection: Selection) -> Table:
    """Return the folds of a selection's iterations; from what is kept ready where it is whole."""
    attempts = _attempts(ledger, selection)
    return Table.union(_range_of(attempt, selection, last) for attempt, last in attempts)


def _range_of(attempt: Attempt, selection: Selection, last: int | None) -> Table:
    if selection.whole:
        scope = attempt.effective if selection.attempts == "effective" else attempt.everything
        return scope.table
    return _united(attempt, attempt.paged.between(selection.first, last))


def _united(attempt: Attempt, iterations: Iterable[int]) -> Table:
    return Table.union(attempt.page(iteration).table for iteration in iterations)


def settled_series(
    ledger: Ledger, selection: Selection, waiting: Collection[int], *, exact: bool
) -> dict[str, Fold]:
    """Return the series' folds of a selection but for iterations that are in progress.

    Their counts, sums and maxima are what a verdict looks at; see `Fold.without` for the rest.

    Args:
        ledger: of the run.
        selection: what to fold.
        waiting: the iterations to leave out, in the attempts that are effective for them.
        exact: read every page where that is needed to tell a maximum; without it, that may
            be the one of all iterations.
    """
    judged = {attempt.number: last for attempt, last in judged_attempts(ledger, selection)}
    found = Table()
    for attempt, last in _attempts(ledger, selection):
        end = judged[attempt.number]
        part = {i for i in waiting if i in attempt.covered and (end is None or i <= end)}
        found.add(_settled(attempt, selection, last, part, exact))
    return found.series


def _settled(
    attempt: Attempt, selection: Selection, last: int | None, part: set[int], exact: bool
) -> Table:
    """Return the folds of one attempt's series without a part, by way of the fewest pages."""
    within = attempt.covered.within(selection.first, last)
    if 2 * len(part) <= len(within):
        whole = _range_of(attempt, selection, last)
        left_out = _united(attempt, part).series
        if not exact or all(whole.series[n].tells_max_without(f) for n, f in left_out.items()):
            rest = Table()
            rest.series = {n: f.without(left_out.get(n, Fold())) for n, f in whole.series.items()}
            return rest
    others = (i for i in attempt.covered.between(selection.first, last) if i not in part)
    return _united(attempt, others)


def newest_complete(ledger: Ledger) -> IterationFolds | None:
    """Return the newest complete iteration of a run."""
    found = [
        (iteration, attempt)
        for attempt in ledger.attempts.values()
        if (iteration := attempt.newest_complete()) is not None
    ]
    if not found:
        return None
    iteration, attempt = max(found, key=lambda item: (item[0], item[1].number))
    return IterationFolds(iteration, complete=True, table=attempt.table(iteration))


def _attempts(ledger: Ledger, selection: Selection) -> list[tuple[Attempt, int | None]]:
    if selection.attempts == "all":
        return [(attempt, selection.last) for attempt in ledger.chosen("all")]
    return judged_attempts(ledger, selection)


def _pages(
    attempt: Attempt, selection: Selection, last: int | None
) -> Iterator[tuple[int, Attempt]]:
    return ((i, attempt) for i in attempt.paged.between(selection.first, last))


def _folded(iteration: int, attempts: list[Attempt], rank: int | None) -> IterationFolds:
    pages = [attempt.page(iteration) for attempt in attempts]
    tables = [page.table if rank is None else page.table_of(rank) for page in pages]
    newest = attempts[-1]
    complete = iteration in newest.covered and iteration not in newest.incomplete
    return IterationFolds(iteration, complete, Table.union(tables))
