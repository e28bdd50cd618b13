"""What was expected of a run against what was reported: complete, incomplete, absent, missing.

Each iteration is judged in the one attempt that is effective for it: a restart heals the
iteration that a crash cut off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, islice

from rankfold.attempt import Attempt
from rankfold.iterations import Iterations
from rankfold.ledger import Attempts, Ledger
from rankfold.partial import MAX_INDEX

LISTED = 100


@dataclass(frozen=True, slots=True)
class Selection:
    """What a reader asks about.

    Attributes:
        series: these series only; empty for all that were reported.
        first: iterations from here on, or from the beginning.
        last: iterations up to here, included, or to the end.
        attempts: which attempts count.
    """

    series: tuple[str, ...] = ()
    first: int | None = None
    last: int | None = None
    attempts: Attempts = "effective"

    @property
    def whole(self) -> bool:
        """Whether it takes in every iteration."""
        return self.first is None and self.last is None


@dataclass(frozen=True, slots=True)
class Missing:
    """What one rank still owes: its commit, or microbatches of a series that it committed."""

    iteration: int
    attempt: int
    rank: int
    series: str | None = None
    microbatches: tuple[int, ...] = ()


@dataclass(slots=True)
class Coverage:
    """Expected against reported, over a selection.

    Attributes:
        first: the lowest iteration that a partial or a commit spoke of.
        last: the highest one.
        complete: how many iterations are complete for every selected series.
        incomplete: those that are not, ascending.
        absent: committed iterations for which no rank reported a selected series.
        open: those of both beyond which no rank has committed two iterations.
        missing: what is owed, the first `LISTED` of it.
        expected: how many ranks the latest attempt has.
        expected_known: False where only the ranks that have reported are expected.
        reporting: how many of them have reported.
        silent: ranks of the latest attempt that never reported, the first `LISTED`.
    """

    first: int | None = None
    last: int | None = None
    complete: int = 0
    incomplete: list[int] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    open: list[int] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    expected: int = 0
    expected_known: bool = False
    reporting: int = 0
    silent: list[int] = field(default_factory=list)


def judged_attempts(ledger: Ledger, selection: Selection) -> list[tuple[Attempt, int | None]]:
    """Return each attempt to judge with the last iteration for which it counts."""
    chosen = ledger.chosen(selection.attempts)
    if isinstance(selection.attempts, int):
        return [(attempt, selection.last) for attempt in chosen]
    return [(a, _lower(selection.last, a.last_effective)) for a in chosen]


def coverage(ledger: Ledger, selection: Selection, listed: int = LISTED) -> Coverage:
    """Return what a run's ranks reported against what was expected of them.

    Args:
        ledger: of the run.
        selection: what to look at; without series, at all that were not superseded.
        listed: how much of what is owed to name; naming it reads pages.
    """
    judged = judged_attempts(ledger, selection)
    latest = judged[-1][0]
    found = Coverage(
        expected=latest.expected,
        expected_known=latest.launch.world_size is not None,
        reporting=len(latest.reporters),
    )
    if found.reporting < found.expected:
        silent = (rank for rank in range(latest.expected) if rank not in latest.reporters)
        found.silent = list(islice(silent, LISTED))
    names = _effective_series(judged, selection)
    for (attempt, last), newest_commit in zip(judged, _newest_commits(judged), strict=True):
        gaps = _cover(found, attempt, selection, last, names, listed)
        found.open += [i for i in gaps if newest_commit < i + 2]
    return found


def _newest_commits(judged: list[tuple[Attempt, int | None]]) -> list[int]:
    """Return for each attempt the highest iteration that it or a later one has committed.

    How far an earlier attempt had come says nothing about the ranks of a later one.
    """
    newest_first = (-1 if a.last_commit is None else a.last_commit for a, _ in reversed(judged))
    return list(accumulate(newest_first, max))[::-1]


def _cover(
    found: Coverage,
    attempt: Attempt,
    selection: Selection,
    last: int | None,
    names: list[str],
    listed: int,
) -> list[int]:
    """Add one attempt's iterations up to `last`; return those that are not complete."""
    series = selection.series or names
    within = attempt.covered.within(selection.first, last)
    if not within:
        return []
    lowest, highest = attempt.covered.at(within[0]), attempt.covered.at(within[-1])
    found.first = lowest if found.first is None else min(found.first, lowest)
    found.last = highest if found.last is None else max(found.last, highest)
    inside = _between(attempt.incomplete, lowest, highest)
    # The attempt keeps what is incomplete for any series: pages are read only to ask about some.
    incomplete = [i for i in inside if not selection.series or _incomplete(attempt, i, series)]
    absent = _absent(attempt, series, lowest, highest)
    gaps = sorted(absent.union(incomplete))
    found.incomplete += incomplete
    found.absent += sorted(absent)
    found.complete += len(within) - len(gaps)
    room = listed - len(found.missing)
    ranks = _expected_ranks(attempt)
    owed = (m for i in incomplete for m in _missing(attempt, i, series, ranks))
    found.missing += islice(owed, room)
    return gaps


def _incomplete(attempt: Attempt, iteration: int, series: Collection[str]) -> bool:
    page = attempt.page(iteration)
    if not page.committed_by_all(attempt.expected):
        return True
    reported = [name for name in series if name in page.series]
    return not all(page.complete_for(name, attempt.expected) for name in reported)


def _absent(attempt: Attempt, series: Collection[str], first: int, last: int) -> set[int]:
    """Return the iterations in which a rank worked but no rank reported one of the series."""
    nowhere = Iterations()
    unseen = (attempt.worked.without(attempt.seen.get(name, nowhere)) for name in series)
    return {iteration for gaps in unseen for iteration in gaps.between(first, last)}


def missing_by_rank(
    ledger: Ledger, selection: Selection, ranks: Collection[int]
) -> tuple[dict[int, list[Missing]], int | None]:
    """Return what each of the ranks owes of the first `LISTED` incomplete iterations.

    To look at more would make the answer wait for as many pages as a run has iterations, when
    one rank of it died long ago.

    Returns:
        by rank, the first `LISTED` of it; and the last iteration that was looked at, or None
        where all were.
    """
    owed: dict[int, list[Missing]] = {rank: [] for rank in ranks}
    judged = judged_attempts(ledger, selection)
    series = selection.series or _effective_series(judged, selection)
    gaps = [
        (attempt, iteration)
        for attempt, last in judged
        for iteration in _between(attempt.incomplete, selection.first, last)
    ]
    for attempt, iteration in gaps[:LISTED]:
        for missing in _missing(attempt, iteration, series, ranks):
            owed[missing.rank].append(missing)
    until = gaps[LISTED - 1][1] if len(gaps) > LISTED else None
    return {rank: missing[:LISTED] for rank, missing in owed.items()}, until


def _between(iterations: Collection[int], first: int | None, last: int | None) -> list[int]:
    low, high = -1 if first is None else first, MAX_INDEX if last is None else last
    return sorted(i for i in iterations if low <= i <= high)


def _effective_series(judged: list[tuple[Attempt, int | None]], selection: Selection) -> list[str]:
    """Return the series that the judged attempts reported and no later one replaced."""
    alone = isinstance(selection.attempts, int)
    scopes = (a.everything if alone else a.effective for a, _ in judged)
    return sorted({name for scope in scopes for name in scope.table.series})


def _expected_ranks(attempt: Attempt) -> Collection[int]:
    known = attempt.launch.world_size is not None
    return range(attempt.expected) if known else sorted(attempt.reporters)


def _missing(
    attempt: Attempt, iteration: int, series: Collection[str], ranks: Collection[int]
) -> Iterator[Missing]:
    """Yield what these ranks owe of an incomplete iteration."""
    page = attempt.page(iteration)
    for rank in ranks:
        if rank not in page.commits:
            yield Missing(iteration, attempt.number, rank)
            continue
        for name in series:
            if name not in page.series:
                continue
            microbatches = page.missing_microbatches(name, rank, LISTED)
            if microbatches:
                yield Missing(iteration, attempt.number, rank, name, tuple(microbatches))


def _lower(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)
