"""A run's books: receipts, conflicts, refusals that change nothing, and attempts."""

from __future__ import annotations

import copy

import pytest

from rankfold.errors import Inconsistent, NotFound, TooLarge
from rankfold.facts import MAX_NAMES, Binding
from rankfold.ledger import KEPT_CONFLICTS, KEPT_ITERATIONS
from rankfold.page import GLOBAL, Conflict
from rankfold.rules import Rule, RuleSet
from rankfold.wire import Receipt, Report
from unit.core.builders import (
    OTHER,
    SERIES,
    dirty,
    ledger_of,
    partial,
    picture,
    plain,
    report,
    scalar,
)


def counts(ledger, attempts="effective", rank=None):  # noqa: ANN001, ANN201
    """Return the mismatch count of each series."""
    return {name: f.count for name, f in ledger.totals(attempts, rank).series.items()}


def test_report_without_lists_makes_the_run_known() -> None:
    """An empty report opens the attempt and says who is there."""
    ledger = ledger_of()
    receipt = ledger.apply(report(2, world_size=4, meta={"dtype": "bf16"}, dropped=3), 7.0)
    attempt = ledger.latest
    assert receipt == Receipt()
    assert (
        attempt.launch.world_size,
        list(attempt.reporters),
        attempt.launch.meta,
        attempt.dropped,
    ) == (
        4,
        [2],
        {"dtype": "bf16"},
        3,
    )
    assert (ledger.last_report, ledger.facts.series, ledger.finished) == (7.0, set(), False)


def test_receipt_adds_up_partials_and_scalars() -> None:
    """New, same and other content in one report are told apart; commits are not counted."""
    ledger = ledger_of(report(partials=[partial(0, 0), partial(0, 1)], scalars=[scalar()]))
    mixed = report(
        partials=[partial(0, 0), dirty(0, 1), partial(0, 2), partial(0, 2)],
        scalars=[scalar(), scalar(microbatch=1), scalar(value=2.0)],
        commits=[(0, 3), (1, 0)],
    )
    assert ledger.apply(mixed, 2.0) == Receipt(accepted=2, duplicates=3, conflicts=2)


def test_conflict_leaves_the_first_report_standing() -> None:
    """Other content of a known identity is noted once, in words, and counted nowhere else."""
    first = report(partials=[partial(3, 1)])
    other = report(partials=[dirty(3, 1)])
    ledger = ledger_of(first, other, other, report(partials=[dirty(3, 1, count=2)]))
    assert ledger.conflicts == 1
    assert counts(ledger) == {SERIES: 0}
    assert [note[:3] for note in ledger.notes] == [(0, 3, Conflict("partial", SERIES, 0, 1))]
    assert SERIES in ledger.notes[0].reason


def test_conflicting_order_matters_only_in_which_content_stands() -> None:
    """Whichever comes first stays; the conflict is the same."""
    a, b = report(partials=[partial()]), report(partials=[dirty()])
    first, second = ledger_of(a, b), ledger_of(b, a)
    assert (counts(first), counts(second)) == ({SERIES: 0}, {SERIES: 1})
    assert first.notes == second.notes
    assert (first.conflicts, second.conflicts) == (1, 1)


@pytest.mark.parametrize(
    ("reports", "kind", "word"),
    [
        ([report(commits=[(0, 2)]), report(commits=[(0, 3)])], "commit", "committed 3"),
        ([report(partials=[partial(0, 5)]), report(commits=[(0, 5)])], "commit", "committed 5"),
        ([report(partials=[partial(0, 0)], commits=[(0, 0)])], "commit", "committed 0"),
        ([report(commits=[(0, 2)]), report(partials=[partial(0, 2)])], "partial", "beyond"),
        ([report(scalars=[scalar(), scalar(weight=2)])], "scalar", "rank 0 reported"),
        ([report(scalars=[scalar()]), report(scalars=[scalar(rule=Rule.SUM)])], "scalar", "rule"),
        (
            [report(r, scalars=[scalar(value=float(r), is_global=True)]) for r in (0, 1, 2)],
            "scalar",
            "the ranks reported",
        ),
    ],
)
def test_contradiction_is_a_conflict_that_counts_once(
    reports: list[Report], kind: str, word: str
) -> None:
    """Sent twice, each contradiction is one conflict and explains itself."""
    ledger = ledger_of(*reports, *reports)
    assert (ledger.conflicts, len(ledger.notes)) == (1, 1)
    assert ledger.notes[0].conflict.kind == kind
    assert word in ledger.notes[0].reason


def test_conflicts_are_counted_beyond_those_that_are_kept_in_words() -> None:
    """Every conflict counts, the first hundred are described."""
    rows = range(KEPT_CONFLICTS + 5)
    ledger = ledger_of(
        report(partials=[partial(0, m) for m in rows]),
        report(partials=[dirty(0, m) for m in rows]),
    )
    assert (ledger.conflicts, len(ledger.notes)) == (len(rows), KEPT_CONFLICTS)


def test_equal_content_of_two_identities_counts_twice() -> None:
    """Nothing but the identity tells a duplicate."""
    rows = [dirty(0, 0), dirty(0, 1), dirty(1, 0), dirty(0, 0, series=OTHER)]
    ledger = ledger_of(report(0, rows), report(1, rows), report(0, rows, attempt=1))
    assert (counts(ledger, "all"), ledger.conflicts) == ({SERIES: 9, OTHER: 3}, 0)


def test_global_scalar_counts_once_and_belongs_to_no_rank() -> None:
    """Every rank may send what is already reduced; the first one counts."""
    ledger = ledger_of(*(report(r, scalars=[scalar(is_global=True)]) for r in range(3)))
    assert ledger.totals("effective").scalars["loss"].values == 1
    assert plain(ledger.totals("effective", 0)) == {"series": {}, "scalars": {}}
    assert ledger.facts.bindings == {"loss": Binding(Rule.MEAN, True)}
    assert ledger.totals("effective").scalars["loss"].last == ((0, 0, GLOBAL, 0), 1.0)


def test_scalar_key_keeps_the_rule_of_its_first_report() -> None:
    """The binding holds over iterations, ranks and attempts: a key has one meaning in a run."""
    ledger = ledger_of(report(scalars=[scalar()]))
    other = report(1, scalars=[scalar(iteration=5, rule=Rule.SUM)], attempt=1)
    assert ledger.apply(other, 2.0) == Receipt(conflicts=1)
    assert ledger.totals("all").scalars["loss"].values == 1


BASE = (
    report(0, [dirty(4)], [scalar()], [(4, 1)], world_size=4),
    report(3, [partial(4)]),
    report(0, [partial(2)], attempt=1),
    report(5, [partial(2)], attempt=2),
)


@pytest.mark.parametrize(
    ("bad", "pointer"),
    [
        (report(1, [dirty(9)], world_size=5), "/world_size"),
        (report(4, [dirty(9)]), "/rank"),
        (report(4, [dirty(9)], world_size=4), "/rank"),
        (report(9, [dirty(9)], attempt=7, world_size=9), "/rank"),
        (report(0, [dirty(9)], attempt=2, world_size=5), "/world_size"),
        (report(0, [dirty(9)], [scalar(f"{SERIES}_diff_max")]), "/scalars"),
        (report(0, [dirty(9, series="new")], [scalar("new_diff_mean")]), "/scalars"),
        (report(0, [dirty(9, series="lo")], [scalar("x")]), None),
    ],
)
def test_refused_report_leaves_the_ledger_as_it_was(bad: Report, pointer: str | None) -> None:
    """A report is applied whole or not at all, down to the last bit of state."""
    ledger = ledger_of(*BASE)
    before = plain(copy.deepcopy(ledger))
    answers = picture(ledger)
    if pointer is None:
        ledger.apply(bad, 9.0)
        assert plain(ledger) != before  # the comparison can fail
        return
    with pytest.raises(Inconsistent) as raised:
        ledger.apply(bad, 9.0)
    assert [error.pointer for error in raised.value.errors] == [pointer]
    assert plain(ledger) == before
    assert picture(ledger) == answers


def test_series_whose_key_a_scalar_has_is_refused() -> None:
    """One name has one value; the series came second, so it is the one refused."""
    ledger = ledger_of(report(scalars=[scalar(f"{SERIES}_diff_max")]))
    before = plain(copy.deepcopy(ledger))
    with pytest.raises(Inconsistent, match="diff_max") as raised:
        ledger.apply(report(partials=[partial()]), 2.0)
    assert raised.value.errors[0].pointer == "/partials"
    assert plain(ledger) == before


def test_series_without_the_taken_key_may_share_its_name() -> None:
    """A key that the rules file removed belongs to nobody."""
    rules = RuleSet.parse('[series."*"]\ndiff_max = false\n')
    reports = (report(scalars=[scalar(f"{SERIES}_diff_max")]), report(partials=[partial()]))
    assert ledger_of(*reports, rules=rules).facts.series == {SERIES}


def test_world_size_may_become_known_later() -> None:
    """Until somebody says, the ranks that reported are expected; then the first word holds."""
    ledger = ledger_of(report(0, [partial()], commits=[(0, 1)]))
    attempt = ledger.latest
    states = [(attempt.expected, attempt.newest_complete())]
    for later in (
        report(2, [partial()], commits=[(0, 1)]),
        report(1, world_size=3),
        report(1, [partial()], commits=[(0, 1)]),
    ):
        ledger.apply(later, 2.0)
        states.append((attempt.expected, attempt.newest_complete()))
    assert states == [(1, 0), (2, 0), (3, None), (3, 0)]


def test_replayed_report_is_taken_as_it_was_applied() -> None:
    """`take` does what `apply` does after its checks."""
    applied, replayed = ledger_of(), ledger_of()
    for number, item in enumerate(BASE):
        assert applied.apply(item, float(number)) == replayed.take(
            item, item.iterations(), float(number), KEPT_ITERATIONS
        )
    assert plain(applied) == plain(replayed)


def test_finish_marks_an_attempt_and_again_changes_nothing() -> None:
    """A run is finished when its latest attempt is."""
    ledger = ledger_of(report(), report(attempt=1))
    ledger.finish(0)
    assert ledger.finished is False
    ledger.finish(1)
    ledger.finish(1)
    assert [a.launch.finished for a in ledger.chosen("all")] == [True, True]
    assert ledger.finished is True


def test_unknown_attempt_is_not_found() -> None:
    """Neither finishing nor reading makes an attempt known."""
    ledger = ledger_of(report())
    for call in (ledger.finish, ledger.totals, ledger.chosen):
        with pytest.raises(NotFound, match="no attempt 3"):
            call(3)
    assert list(ledger.attempts) == [0]


ATTEMPTS = {
    0: report(0, [dirty(i) for i in range(10)], attempt=0),
    1: report(0, [dirty(i, count=2) for i in range(6, 9)], attempt=1),
    2: report(0, [dirty(i, count=4) for i in range(4, 6)], attempt=2),
}


@pytest.mark.parametrize(
    "order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
)
def test_superseding_does_not_depend_on_the_order_of_arrival(order: tuple[int, ...]) -> None:
    """Attempt 2 begins below attempt 1 and replaces all of it, whichever arrives first."""
    ledger = ledger_of(*(ATTEMPTS[number] for number in order))
    assert {number: a.cut for number, a in ledger.attempts.items()} == {0: 4, 1: 4, 2: None}
    assert [a.number for a in ledger.chosen("all")] == [0, 1, 2]
    assert counts(ledger) == {SERIES: 4 + 0 + 8}
    assert counts(ledger, "all") == {SERIES: 10 + 6 + 8}
    assert [counts(ledger, number) for number in (0, 1, 2)] == [
        {SERIES: 10},
        {SERIES: 6},
        {SERIES: 8},
    ]


def test_late_report_of_a_superseded_iteration_counts_only_in_all() -> None:
    """What happened stays visible, but the totals leave it out."""
    ledger = ledger_of(report(partials=[dirty(2)]), report(partials=[partial(2)], attempt=1))
    assert ledger.apply(report(partials=[dirty(1), dirty(3)]), 3.0) == Receipt(accepted=2)
    assert (counts(ledger), counts(ledger, "all")) == ({SERIES: 1}, {SERIES: 3})


def test_conflict_or_scalar_of_a_later_attempt_supersedes_too() -> None:
    """Whatever an attempt reports of an iteration says that it has been there."""
    for later in (
        report(scalars=[scalar(iteration=1)], attempt=1),
        report(commits=[(1, 0)], attempt=1),
    ):
        ledger = ledger_of(report(partials=[dirty(0), dirty(1)]), later)
        assert counts(ledger) == {SERIES: 1}


def test_conflicts_of_superseded_attempts_stay() -> None:
    """The count is over all attempts."""
    ledger = ledger_of(
        report(partials=[partial()]),
        report(partials=[dirty()]),
        report(partials=[partial()], attempt=1),
        report(partials=[dirty()], attempt=1),
    )
    assert ledger.conflicts == 2


def test_run_has_a_bounded_number_of_names() -> None:
    """A run that invents a name per report is refused at a number, whole; known names go on."""
    ledger = ledger_of(report(partials=[partial(series=f"s{i}") for i in range(MAX_NAMES)]))
    before = picture(ledger)
    more = report(partials=[partial(series="one-more"), partial(1, series="s0")])
    with pytest.raises(TooLarge, match="may have 2000 series"):
        ledger.apply(more, 2.0)
    assert picture(ledger) == before
    known = report(partials=[partial(1, series="s0")], scalars=[scalar("loss")])
    assert ledger.apply(known, 2.0) == Receipt(2, 0, 0)
    keys = [scalar(f"k{i}") for i in range(MAX_NAMES)]
    with pytest.raises(TooLarge):
        ledger.apply(report(scalars=keys), 3.0)
