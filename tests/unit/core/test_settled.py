"""What a live verdict leaves out of the folds: iterations that are in progress."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.coverage import Selection
from rankfold.fold import Fold, Table
from rankfold.partial import Worst
from rankfold.reading import settled_series
from unit.core.builders import OTHER, SERIES, Shelf, dirty, ledger_of, partial, report
from unit.core.worlds import Parts, one_report, worlds


@settings(max_examples=60, deadline=None)
@given(worlds(contradictory=False), st.sets(st.integers(0, 4)))
def test_settled_series_are_the_fold_of_the_other_iterations(
    parts: list[Parts], waiting: set[int]
) -> None:
    """Leaving iterations out gives what folding the others alone would give."""
    ledger = ledger_of(*(one_report(*part) for part in parts))
    selection = Selection(attempts="effective")
    found = settled_series(ledger, selection, waiting, exact=True)
    others = Table.union(
        attempt.page(i).table
        for attempt in ledger.chosen("all")
        for i in attempt.paged
        if (attempt.cut is None or i < attempt.cut) and not (i in waiting and i in attempt.covered)
    )
    assert judged(found) == judged(others.series)
    sums = judged(settled_series(ledger, selection, waiting, exact=False))
    for name, (_, *exact) in judged(others.series).items():
        assert sums[name][1:] == tuple(exact)


def judged(series: dict[str, Fold]) -> dict[str, tuple[Any, ...]]:
    """Return what a verdict looks at; the maximum comes first."""
    return {
        name: (f.max, f.partials, f.valid, f.count, f.nonfinite, f.sum)
        for name, f in series.items()
        if f.partials
    }


def history(newest: dict[str, Any]) -> tuple[Shelf, Any]:
    """Return a run of complete iterations with a last one that is in progress."""
    shelf = Shelf()
    ledger = shelf.ledger()
    for i in range(30):
        ledger.apply(report(0, [dirty(i)], commits=[(i, 1)], world_size=1), 1.0)
    ledger.apply(report(0, [newest]), 1.0)
    shelf.save(ledger, keep=1)
    return shelf, ledger


@pytest.mark.parametrize(("newest", "loads"), [(0.25, 1), (0.5, 30), (0.75, 30)])
def test_settled_series_read_pages_only_to_tell_a_maximum(newest: float, loads: int) -> None:
    """Sums are subtracted; only where the maximum is the newest's are the others read."""
    shelf, ledger = history(dirty(30, max=newest, sum=newest))
    shelf.loads = 0
    found = settled_series(ledger, Selection(attempts="all"), {30}, exact=True)[SERIES]
    assert (found.count, found.max) == (30, 0.5)
    assert shelf.loads <= loads


def test_settled_series_of_a_clean_run_read_no_page() -> None:
    """Without a mismatch every maximum is 0, so nothing has to be looked up."""
    shelf = Shelf()
    ledger = shelf.ledger()
    for i in range(30):
        ledger.apply(report(0, [partial(i)], commits=[(i, 1)], world_size=1), 1.0)
    ledger.apply(report(0, [partial(30), partial(30, series=OTHER, valid=0, max=None)]), 1.0)
    shelf.save(ledger, keep=1)
    shelf.loads = 0
    found = settled_series(ledger, Selection(attempts="all"), {30}, exact=True)
    assert judged(found) == {SERIES: (0.0, 30, 240, 0, 0, 0)}
    assert found[OTHER].max is None
    assert shelf.loads == 0


def test_settled_series_without_extremes_read_no_page() -> None:
    """A scrape needs the sums alone."""
    shelf, ledger = history(partial(30))
    before = shelf.loads
    found = settled_series(ledger, Selection(attempts="all"), {30}, exact=False)[SERIES]
    assert (found.count, found.valid) == (30, 240)
    assert shelf.loads == before


def test_fold_without_a_part_leaves_its_worst_tokens_out() -> None:
    """What is left of the kept tokens is shown."""
    ledger = ledger_of(report(0, [dirty(i, worst=Worst((0, i), 0.5, 1.0, 1)) for i in (0, 1)]))
    table = ledger.totals("all").series[SERIES]
    rest = table.without(ledger.attempts[0].page(1).table.series[SERIES])
    assert [token.worst.position for token in rest.worst] == [(0, 0)]
