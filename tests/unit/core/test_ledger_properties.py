"""The ledger against a naive oracle, and against itself in any other order."""

from __future__ import annotations

import math
import random
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold import reading
from rankfold.coverage import Selection, coverage
from rankfold.facts import Facts
from rankfold.fold import KEPT_WORST, Place, Table, WorstToken
from rankfold.ledger import Ledger
from rankfold.partial import Worst
from rankfold.rules import RuleSet
from unit.core.builders import OTHER, SERIES, Shelf, ledger_of, partial, picture, plain, report
from unit.core.oracle import Oracle, shown
from unit.core.worlds import Parts, one_report, rearranged, worlds

thorough = settings(max_examples=100, deadline=None)
SELECTIONS = [
    Selection(series, first, last, attempts)
    for series in ((), (SERIES,), (OTHER, SERIES), ("never",))
    for first, last in ((None, None), (1, 3), (4, None), (None, 0))
    for attempts in ("effective", "all")
]


def built(parts: list[Parts]) -> Ledger:
    """Return the ledger of these parts in their order."""
    return ledger_of(*(one_report(*part) for part in parts))


def shown_table(table: Table) -> dict[str, object]:
    """Return a table as the oracle writes it."""
    return {name: shown(fold) for name, fold in {**table.series, **table.scalars}.items()}


@thorough
@given(worlds(contradictory=True))
def test_ledger_agrees_with_naive_oracle(parts: list[Parts]) -> None:
    """Receipts, totals, conflicts, coverage and the newest complete iteration are by definition."""
    ledger, oracle = Ledger("default", "run", Facts(RuleSet())), Oracle()
    for part in parts:
        assert ledger.apply(one_report(*part), 1.0) == oracle.take(one_report(*part))
    assert ledger.conflicts == len(oracle.conflicts)
    for attempts in ("effective", "all", *ledger.attempts):
        for rank in (None, 0, 1, 2, 3):
            totals = shown_table(ledger.totals(attempts, rank))
            assert repr(sorted(totals.items())) == repr(
                sorted(oracle.totals(attempts, rank).items())
            )
    newest = reading.newest_complete(ledger)
    assert (newest and newest.iteration) == oracle.newest_complete()
    singles = [Selection(attempts=number) for number in ledger.attempts]
    for selection in (*SELECTIONS, *singles):
        found = asdict(coverage(ledger, selection))
        expected = oracle.coverage(selection)
        assert {name: found[name] for name in expected} == expected


@thorough
@given(worlds(), st.randoms(use_true_random=False))
def test_ledger_forgets_order_batching_and_duplicates(
    parts: list[Parts], chance: random.Random
) -> None:
    """The same items in any order, any batches and sent again give the same bits everywhere."""
    assert picture(ledger_of(*rearranged(parts, chance))) == picture(built(parts))
    assert built(parts).conflicts == 0


@settings(max_examples=50, deadline=None)
@given(worlds(contradictory=True), st.integers(0, 2))
def test_ledger_answers_alike_when_pages_live_elsewhere(parts: list[Parts], keep: int) -> None:
    """A ledger whose pages are saved, forgotten and loaded as copies answers like one in memory."""
    shelf = Shelf()
    ledger = shelf.ledger()
    for part in parts:
        ledger.apply(one_report(*part), 1.0)
        shelf.save(ledger, keep)
    assert picture(ledger) == picture(built(parts))


@settings(max_examples=50, deadline=None)
@given(worlds(contradictory=True))
def test_totals_are_the_merged_ranks_and_iterations(parts: list[Parts]) -> None:
    """Folding ranks, iterations or ranges gives the totals that are kept ready; ranks no tokens."""
    ledger = built(parts)
    for attempts in ("effective", "all", *ledger.attempts):
        whole = ledger.totals(attempts)
        ranks = Table.union(ledger.totals(attempts, rank) for rank in range(4))
        assert plain(ranks.series) == plain(whole.bare().series)
        shared = {"tokens": whole.scalars["tokens"]} if "tokens" in whole.scalars else {}
        assert plain({**ranks.scalars, **shared}) == plain(whole.scalars)
        pages = reading.iterations(ledger, Selection(attempts=attempts), None, 1000)
        assert plain(Table.union(page.table for page in pages)) == plain(whole)
        early = reading.range_totals(ledger, Selection(last=1, attempts=attempts))
        late = reading.range_totals(ledger, Selection(first=2, attempts=attempts))
        assert plain(Table.union([early, late])) == plain(whole)


@settings(max_examples=50, deadline=None)
@given(worlds(contradictory=True))
def test_conflicts_sent_again_count_once(parts: list[Parts]) -> None:
    """Sending everything a second time accepts nothing and finds no new conflict."""
    ledger = built(parts)
    before = picture(ledger)
    again = [ledger.apply(one_report(*part), 1.0) for part in parts]
    assert sum(receipt.accepted for receipt in again) == 0
    assert picture(ledger) == before


@pytest.mark.parametrize("seed", range(20))
def test_ledger_agrees_with_oracle_in_a_longer_run(seed: int) -> None:
    """A run of many reports, with restarts and conflicts, still adds up to the oracle's sums."""
    chance = random.Random(seed)
    ledger, oracle = ledger_of(), Oracle()
    for _ in range(80):
        items = [
            (
                chance.choice(("partial", "partial", "commit", "scalar")),
                int(chance.random() < 0.02),
                chance.randrange(8),
                chance.randrange(4),
                None,
            )
            for _ in range(chance.randrange(12))
        ]
        named = [
            (*i[:4], chance.choice(("loss", "steps", "tokens") if i[0] == "scalar" else (SERIES,)))
            for i in items
        ]
        part = (chance.randrange(3), chance.randrange(3), chance.random() < 0.5, named)
        assert ledger.apply(one_report(*part), 1.0) == oracle.take(one_report(*part))
    assert ledger.conflicts == len(oracle.conflicts)
    assert repr(sorted(shown_table(ledger.totals("effective")).items())) == repr(
        sorted(oracle.totals("effective").items())
    )


# Few different distances, so that ties and the sixteenth of an iteration are met often.
TOKENS = st.builds(
    Worst,
    st.just((0, 0)),
    st.sampled_from([-1.0, -1.5, -2.0, -math.inf, math.nan]),
    st.sampled_from([-1.0, -3.0]),
    st.integers(0, 2),
)


@given(st.lists(st.tuples(st.integers(0, 1), TOKENS), min_size=1, max_size=60), st.integers(1, 20))
def test_worst_tokens_are_those_of_all_whatever_the_order(
    found: list[tuple[int, Worst]], most: int
) -> None:
    """What is left out on arrival is never among the worst of an iteration or of the run."""
    rows = [partial(iteration, i, count=1, worst=w) for i, (iteration, w) in enumerate(found)]
    batches = [rows[at : at + most] for at in range(0, len(rows), most)]
    ledger = ledger_of(*(report(partials=batch) for batch in batches))

    placed = [
        WorstToken.of(Place(iteration, i, 0, 0), worst)
        for i, (iteration, worst) in enumerate(found)
    ]
    for table, tokens in (
        (ledger.totals("all"), placed),
        *(
            (
                ledger.attempts[0].page(iteration).table,
                [t for t in placed if t.place[0] == iteration],
            )
            for iteration in {token.place.iteration for token in placed}
        ),
    ):
        kept = table.series[SERIES].worst
        assert repr(list(kept)) == repr(sorted(tokens)[:KEPT_WORST])
