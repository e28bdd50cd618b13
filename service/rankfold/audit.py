"""Whether a run's stored totals are what its pages fold to."""

from __future__ import annotations

from collections.abc import Iterator

from rankfold.attempt import Attempt
from rankfold.exact import to_units
from rankfold.fold import Fold, Table
from rankfold.ledger import Ledger
from rankfold.page import Page, SeriesCell
from rankfold.partial import PartialContent
from rankfold.scope import Scope


def audit(ledger: Ledger) -> Iterator[str]:
    """Fold a run's pages anew and yield, in words, everything that differs from what is stored."""
    for attempt in ledger.chosen("all"):
        for fault in _audit_attempt(attempt):
            yield f"run {ledger.run!r} of {ledger.project!r}, attempt {attempt.number}: {fault}"


def compare(ledger: Ledger, other: Ledger) -> Iterator[str]:
    """Yield, in words, what two ledgers of one run do not agree about, pages aside."""
    if ledger.facts != other.facts:
        yield "what is known of the run as a whole differs"
        return
    if sorted(ledger.notes) != sorted(other.notes):
        yield "its conflicts differ"
    for a, b in zip(ledger.chosen("all"), other.chosen("all"), strict=True):
        where = f"attempt {a.number}"
        yield from _differences(f"{where}: all folds", a.everything, b.everything)
        yield from _differences(f"{where}: effective folds", a.effective, b.effective)
        if _heard(a) != _heard(b):
            yield f"{where}: reporters differ"
        for name in ("conflicts", "cut", "incomplete", "last_commit"):
            if getattr(a, name) != getattr(b, name):
                yield f"{where}: {name} differ"
        for name in ("paged", "covered", "worked"):
            if getattr(a, name).runs() != getattr(b, name).runs():
                yield f"{where}: iterations that are {name} differ"
        if _seen(a) != _seen(b):
            yield f"{where}: iterations of series differ"


def _heard(attempt: Attempt) -> dict[int, tuple[int | None, int]]:
    """Return how far each rank has come; when it said so is another time for each copy."""
    return {rank: (r.last_iteration, r.dropped) for rank, r in attempt.reporters.items()}


def _seen(attempt: Attempt) -> dict[str, list[list[int]]]:
    """Return the iterations of each series; one of which nothing was accepted has none."""
    return {series: seen.runs() for series, seen in attempt.seen.items() if seen}


def _audit_attempt(attempt: Attempt) -> Iterator[str]:
    everything, remaining = Scope(), Scope()
    conflicts = 0
    for iteration in attempt.paged:
        page = attempt.page(iteration)
        conflicts += len(page.conflicts)
        yield from _audit_page(attempt, iteration, page)
        scopes = [everything]
        if attempt.cut is None or iteration < attempt.cut:
            scopes.append(remaining)
        for scope in scopes:
            scope.add_page(page)
    yield from _differences("all folds", attempt.everything, everything)
    yield from _differences("effective folds", attempt.effective, remaining)
    if conflicts != attempt.conflicts:
        yield f"{attempt.conflicts} conflicts are stored, its pages hold {conflicts}"


def _audit_page(attempt: Attempt, iteration: int, page: Page) -> Iterator[str]:
    where = f"iteration {iteration}"
    for series, ranks in page.series.items():
        for rank, cell in ranks.items():
            if not _agrees(cell):
                yield f"{where}: rank {rank} of {series} is not the fold of its microbatches"
    covered = page.counts_for_coverage
    if covered is not (iteration in attempt.covered):
        yield f"{where}: coverage is stored as {not covered}"
    open_ = covered and not page.complete(attempt.expected)
    if open_ is not (iteration in attempt.incomplete):
        yield f"{where}: complete is stored as {open_}"
    missed = [s for s in page.series if page.worked and iteration not in attempt.seen.get(s, ())]
    if missed:
        yield f"{where}: not stored as seen: {', '.join(missed)}"


def _agrees(cell: SeriesCell) -> bool:
    """Whether a cell's fold is that of the contents that are kept, as far as they tell."""
    fold = cell.fold
    if fold.partials != len(cell.known):
        return False
    if len(cell.contents) < len(cell.known):
        return True  # folded away: the fold is all there is
    told = fold._replace(moments=None, ulp_max=None, total=None, worst=())
    return bool(_fold_of(cell.contents) == told)


def _fold_of(contents: list[PartialContent]) -> Fold:
    fold = Fold()
    for _, count, valid, nonfinite, max_, sum_ in contents:
        fold = fold.merge(Fold(1, valid, count, nonfinite, to_units(sum_), max_, max_))
    return fold


def _differences(name: str, stored: Scope, folded: Scope) -> Iterator[str]:
    ranks = sorted(stored.ranks.keys() | folded.ranks.keys())
    tables = [
        ("over all ranks", stored.table, folded.table),
        *((f"of rank {rank}", stored.of(rank), folded.of(rank)) for rank in ranks),
    ]
    for which, have, want in tables:
        for key in sorted(_names(have) | _names(want)):
            a, b = _entry(have, key), _entry(want, key)
            # A worst token may hold a NaN, which is not equal to itself.
            if a != b and repr(a) != repr(b):
                yield f"{name} {which}: {key} is not what its iterations fold to"


def _names(table: Table) -> set[str]:
    return {*table.series, *table.scalars}


def _entry(table: Table, name: str) -> tuple[object, object]:
    return table.series.get(name), table.scalars.get(name)
