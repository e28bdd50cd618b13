"""The audit agrees with every ledger that was built from reports, and sees every change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from rankfold.attempt import Attempt
from rankfold.audit import audit, compare
from rankfold.fold import Fold, ScalarFold
from rankfold.iterations import Iterations
from rankfold.ledger import Ledger
from rankfold.microbatches import Microbatches
from rankfold.page import Conflict
from rankfold.partial import Worst
from unit.core.builders import SERIES, dirty, ledger_of, partial, report, scalar
from unit.core.worlds import Parts, one_report, worlds


@settings(max_examples=60, deadline=None)
@given(worlds(contradictory=True))
def test_audit_agrees_with_what_reports_built(parts: list[Parts]) -> None:
    """Whatever arrived, in whatever order, the stored totals are what the pages fold to."""
    ledger = ledger_of()
    for part in parts:
        ledger.apply(one_report(*part), 1.0, keep=1)
    assert list(audit(ledger)) == []


def test_audit_takes_a_nan_for_the_same_as_another() -> None:
    """A worst token may hold one; read twice from a file, it is two objects."""
    ledgers = []
    for _ in range(2):
        worst = Worst((0, 1), float("nan"), -1.0, 0)
        partials = [partial(count=1, nonfinite=1, valid=2, worst=worst)]
        ledgers.append(ledger_of(report(partials=partials)))
    ledger, twin = ledgers
    ledger.attempts[0].everything = twin.attempts[0].everything
    assert list(audit(ledger)) == []


def test_audit_takes_a_fold_whose_contents_are_gone() -> None:
    """Where microbatches were folded away, their fold is all that is left to add up."""
    ledger = ledger_of()
    for i in range(3):
        rows = [dirty(i), dirty(i, 1)]
        ledger.apply(report(0, rows, commits=[(i, 2)], world_size=1), 1.0, keep=1)
    cell = ledger.attempts[0].page(0).series[SERIES][0]
    assert (cell.contents, list(cell.known)) == ([], [0, 1])
    assert list(audit(ledger)) == []


def sound() -> Ledger:
    """Return a run with a restart, a scalar and two ranks."""
    both = [
        report(rank, [dirty(0), dirty(0, 1), dirty(1)], [scalar()], [(0, 2), (1, 1)], world_size=2)
        for rank in (0, 1)
    ]
    return ledger_of(*both, report(0, [dirty(1)], attempt=1))


def total(ledger: Ledger) -> None:
    """Lose a count of the total."""
    ledger.attempts[0].everything.table.series[SERIES] = Fold()


def effective(ledger: Ledger) -> None:
    """Count something twice in what is not superseded."""
    scope = ledger.attempts[0].effective
    scope.add(0, scope.ranks[1])


def rank(ledger: Ledger) -> None:
    """Lose a rank's scalars."""
    ledger.attempts[0].everything.ranks[1].scalars["loss"] = ScalarFold()


def cell(ledger: Ledger) -> None:
    """Change what a microbatch said."""
    contents = ledger.attempts[0].page(0).series[SERIES][0].contents
    contents[0] = (0, 1, 9, 0, 0.5, 0.5)


def microbatch(ledger: Ledger) -> None:
    """Forget that a microbatch was reported."""
    ledger.attempts[0].page(0).series[SERIES][0].known = Microbatches.first(1)


def covered(ledger: Ledger) -> None:
    """Forget that an iteration happened."""
    ledger.attempts[0].covered = Iterations([0])


def incomplete(ledger: Ledger) -> None:
    """Call a gap complete."""
    ledger.attempts[1].incomplete.clear()


def seen(ledger: Ledger) -> None:
    """Forget in which iterations a series was reported."""
    ledger.attempts[0].seen[SERIES] = Iterations()


def conflicts(ledger: Ledger) -> None:
    """Lose the count of a conflict."""
    ledger.attempts[0].page(0).conflicts.add(Conflict("partial", SERIES, 0, 0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (total, "all folds over all ranks"),
        (effective, "effective folds over all ranks"),
        (rank, "all folds of rank 1: loss"),
        (cell, "rank 0 of training/rollout_logprobs is not the fold"),
        (microbatch, "rank 0 of training/rollout_logprobs is not the fold"),
        (covered, "iteration 1: coverage is stored as False"),
        (incomplete, "iteration 1: complete is stored as True"),
        (seen, "not stored as seen: training/rollout_logprobs"),
        (conflicts, "0 conflicts are stored, its pages hold 1"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_audit_finds_each_change(change: Callable[[Ledger], None], words: str) -> None:
    """Nothing that is stored can differ from the pages unnoticed."""
    ledger = sound()
    assert list(audit(ledger)) == []
    change(ledger)
    assert any(words in fault for fault in audit(ledger)), list(audit(ledger))


def test_compare_finds_nothing_between_equals() -> None:
    """The same reports make the same ledger."""
    reports = [report(rank, [dirty(i) for i in range(3)], world_size=2) for rank in (0, 1)]
    assert list(compare(ledger_of(*reports), ledger_of(*reports))) == []


def test_compare_does_not_mind_when_a_copy_arrived() -> None:
    """A report that is sent again after a move changes nothing but the time."""
    one, other = (ledger_of(report(partials=[dirty(0)])) for _ in range(2))
    other.apply(report(partials=[dirty(0)]), 99.0)
    assert list(compare(one, other)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.launch.meta.update(x="y"), "what is known of the run as a whole differs"),
        (lambda a: a.everything.table.series.clear(), "attempt 0: all folds over all ranks: "),
        (lambda a: a.reporters.clear(), "attempt 0: reporters differ"),
        (lambda a: a.incomplete.clear(), "attempt 0: incomplete differ"),
        (lambda a: a.worked.add(77), "attempt 0: iterations that are worked differ"),
        (lambda a: a.seen[SERIES].add(77), "attempt 0: iterations of series differ"),
    ],
)
def test_compare_says_what_differs(change: Callable[[Attempt], None], words: str) -> None:
    """The first difference is told in words."""
    one, other = (ledger_of(report(partials=[dirty(0)], world_size=2)) for _ in range(2))
    change(other.attempts[0])
    first, *_ = compare(one, other)
    assert first.startswith(words)


def test_compare_looks_at_conflicts() -> None:
    """Which side stood is not all there is: what was in conflict is compared too."""
    one, other = (ledger_of(report(partials=[dirty(0)])) for _ in range(2))
    one.apply(report(partials=[partial(0)]), 1.0)
    assert list(compare(one, other)) == ["its conflicts differ", "attempt 0: conflicts differ"]
