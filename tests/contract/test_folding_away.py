"""Folding contents away changes no answer, and late copies are still counted once."""

from __future__ import annotations

from hypothesis import given, settings

from contract.answering import about
from rankfold.facts import Facts
from rankfold.ledger import Ledger
from rankfold.rules import RuleSet
from rankfold.wire import Receipt
from support.reports import SERIES, partial, report
from unit.core.worlds import Parts, one_report, worlds


def new_ledger() -> Ledger:
    """Return an empty run."""
    return Ledger("default", "run", Facts(RuleSet()))


@settings(max_examples=100, deadline=None)
@given(worlds(contradictory=False))
def test_folding_away_changes_no_answer(parts: list[Parts]) -> None:
    """With everything sent twice, a run that keeps one iteration answers as one that keeps all."""
    brief, whole = new_ledger(), new_ledger()
    for part in [*parts, *parts]:
        sent = one_report(*part)
        assert brief.apply(sent, 1.0, keep=1) == whole.apply(sent, 1.0, keep=1000)
    assert repr(about(brief)) == repr(about(whole))


def finished(iterations: int, microbatches: int) -> Ledger:
    """Return a run of complete iterations of which only the newest keeps its contents."""
    ledger = new_ledger()
    for iteration in range(iterations):
        rows = [partial(iteration=iteration, microbatch=m, valid=m) for m in range(1, microbatches)]
        rows.append(partial(iteration=iteration))
        commits = [{"iteration": iteration, "microbatches": microbatches}]
        ledger.apply(report(world_size=1, partials=rows, commits=commits), 1.0, keep=1)
    return ledger


def test_late_copy_of_a_folded_iteration_is_a_duplicate() -> None:
    """Its content cannot be told any more, but it is never counted again."""
    ledger = finished(3, 4)
    late = [partial(iteration=0, microbatch=m, valid=99) for m in range(4)]
    assert ledger.apply(report(partials=late), 2.0, keep=1) == Receipt(0, 4, 0)
    assert ledger.totals("all").series[SERIES].partials == 12
    assert ledger.conflicts == 0


def test_late_copy_is_still_judged_where_the_content_is_known() -> None:
    """A single microbatch is its own fold, and the newest iterations keep all contents."""
    single = finished(3, 1)
    changed = report(partials=[partial(iteration=0, valid=9)])
    assert single.apply(changed, 2.0, keep=1) == Receipt(0, 0, 1)
    several = finished(3, 4)
    newest = report(partials=[partial(iteration=2, microbatch=1, valid=99)])
    assert several.apply(newest, 2.0, keep=1) == Receipt(0, 0, 1)


def test_late_microbatch_beyond_the_commit_of_a_folded_iteration_is_a_conflict() -> None:
    """The commit still says how many there were."""
    ledger = finished(3, 4)
    beyond = report(partials=[partial(iteration=0, microbatch=4)])
    assert ledger.apply(beyond, 2.0, keep=1) == Receipt(0, 0, 1)
    assert ledger.conflicts == 1


def test_late_series_of_a_folded_iteration_is_taken() -> None:
    """What was never reported is new, however old its iteration."""
    ledger = finished(3, 4)
    other = [partial(series="other", iteration=0, microbatch=m) for m in range(4)]
    assert ledger.apply(report(partials=other), 2.0, keep=1) == Receipt(4, 0, 0)
    assert ledger.apply(report(partials=other), 2.0, keep=1) == Receipt(0, 4, 0)
    assert ledger.totals("all").series["other"].partials == 4


def test_incomplete_iteration_keeps_its_contents() -> None:
    """What still waits for a rank is judged in full when it comes."""
    ledger = new_ledger()
    for iteration in range(4):
        rows = [partial(iteration=iteration, microbatch=m) for m in range(2)]
        ledger.apply(report(world_size=2, partials=rows), 1.0, keep=1)
    changed = report(partials=[partial(iteration=0, valid=9)])
    assert ledger.apply(changed, 2.0, keep=1) == Receipt(0, 0, 1)
