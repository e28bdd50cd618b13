"""Exactly once within an iteration, and the bookkeeping of what is complete."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rankfold.fold import Fold, Place, ScalarFold, Table
from rankfold.page import (
    GLOBAL,
    Cell,
    Page,
    Sorted,
    decide,
    same_partial,
    same_scalar,
)
from rankfold.rules import Rule
from unit.core.builders import dirty, partial, partial_columns, plain

CLEAN = (0, 0, 8, 0, 0.0, 0.0)
OTHER = (1, 1, 8, 0, 0.5, 0.5)


def entered(page: Page, rank: int, series: str, *microbatches: int) -> Sorted:
    """Enter and fold clean partials, as a ledger does."""
    found = page.enter_partials(rank, series, [(m, *CLEAN[1:]) for m in microbatches])
    if found.accepted:
        contents = [(microbatches[i], *CLEAN[1:]) for i in found.accepted]
        page.fold_partials(rank, series, Fold.of(contents))
    return found


def test_contents_are_only_ever_appended_to() -> None:
    """Whoever took a cell's list and its length still has what the cell had then."""
    page = Page()
    entered(page, 0, "s", 0, 1)
    contents = page.series["s"][0].contents
    for arriving, kept in (([2], True), ([5], True), ([3, 4], False), ([7], True)):
        before = [*contents]
        entered(page, 0, "s", *arriving)
        now = page.series["s"][0].contents
        assert contents[: len(before)] == before
        assert (now is contents) == kept
        contents = now
    page.fold_away()
    assert [content[0] for content in contents] == [0, 1, 2, 3, 4, 5, 7]
    assert page.series["s"][0].contents == []


@pytest.mark.parametrize(
    ("known", "arriving", "same"),
    [
        ((1, 8, 0, 0.5, 1.0), (1, 8, 0, 0.5, 1.0), True),
        ((1, 8, 0, 0.5, 1.0), (1, 8, 0, 0.5, 1.0 + 9e-10), True),
        ((1, 8, 0, 0.5, 1.0), (1, 8, 0, 0.5, 1.0 + 2e-9), False),
        ((1, 8, 0, 0.5, 1e300), (1, 8, 0, 0.5, 1e300 * (1 + 1e-10)), True),
        ((1, 8, 0, 0.5, 0.0), (1, 8, 0, 0.5, 5e-324), False),
        ((1, 8, 0, 0.5, 1.0), (2, 8, 0, 0.5, 1.0), False),
        ((1, 8, 0, 0.5, 1.0), (1, 9, 0, 0.5, 1.0), False),
        ((1, 8, 0, 0.5, 1.0), (1, 8, 1, 0.5, 1.0), False),
        ((1, 8, 0, 0.5, 1.0), (1, 8, 0, math.nextafter(0.5, 1), 1.0), False),
        ((0, 0, 0, None, 0.0), (0, 0, 0, None, 0.0), True),
        ((0, 0, 0, None, 0.0), (0, 8, 0, 0.0, 0.0), False),
    ],
)
def test_partial_is_the_same_up_to_the_rounding_of_its_sum(
    known: Any, arriving: Any, same: bool
) -> None:
    """Counts and maximum must agree exactly, sums up to a relative 1e-9, both ways round."""
    known, arriving = (3, *known), (3, *arriving)
    assert same_partial(known, arriving) is same
    assert same_partial(arriving, known) is same


@pytest.mark.parametrize(
    ("known", "arriving", "same"),
    [
        ((1.0, 1, Rule.SUM), (1.0, 1, Rule.SUM), True),
        ((math.nan, 1, Rule.SUM), (math.nan, 1, Rule.SUM), True),
        ((math.nan, 1, Rule.SUM), (1.0, 1, Rule.SUM), False),
        ((math.inf, 1, Rule.SUM), (-math.inf, 1, Rule.SUM), False),
        ((1.0, 1, Rule.SUM), (1.0 + 1e-12, 1, Rule.SUM), False),
        ((1.0, 1, Rule.SUM), (1.0, 2, Rule.SUM), False),
        ((1.0, 1, Rule.SUM), (1.0, 1, Rule.MEAN), False),
    ],
)
def test_scalar_is_the_same_only_exactly(known: Any, arriving: Any, same: bool) -> None:
    """Value, weight and rule must agree; NaN agrees with NaN."""
    known, arriving = (3, *known), (3, *arriving)
    assert same_scalar(known, arriving) is same
    assert same_scalar(arriving, known) is same


def test_contents_are_what_tells_a_duplicate() -> None:
    """Microbatch, count, valid, nonfinite, max and sum, in that order."""
    assert partial_columns([partial(), dirty(0, 1)]).contents() == [CLEAN, OTHER]


@pytest.mark.parametrize(
    ("microbatches", "contents", "limit", "expected", "kept"),
    [
        ((1, 2), "ab", None, ([0, 1], [], []), {0: "x", 1: "a", 2: "b"}),
        ((1, 1), "aa", None, ([0], [1], []), {0: "x", 1: "a"}),
        ((1, 1), "ab", None, ([0], [], [1]), {0: "x", 1: "a"}),
        ((0, 1), "xa", None, ([1], [0], []), {0: "x", 1: "a"}),
        ((0, 1), "ya", None, ([1], [], [0]), {0: "x", 1: "a"}),
        ((1, 2), "ab", 2, ([0], [], [1]), {0: "x", 1: "a"}),
        ((1, 2), "ab", 3, ([0, 1], [], []), {0: "x", 1: "a", 2: "b"}),
        ((1,), "a", 0, ([], [], [0]), {0: "x"}),
    ],
)
def test_decide_sorts_arrivals(
    microbatches: tuple[int, ...], contents: str, limit: int | None, expected: Any, kept: Any
) -> None:
    """New is accepted and kept, same is a duplicate, other or beyond the commit a conflict."""
    cell = Cell(Fold())
    decide(cell, [(0, "x")], tuple.__eq__, None)
    arriving = list(zip(microbatches, contents, strict=True))
    assert [*map(list, decide(cell, arriving, tuple.__eq__, limit))] == [*expected]
    assert (cell.contents, list(cell.known)) == (list(kept.items()), list(kept))


def test_page_keeps_nothing_of_what_it_does_not_accept() -> None:
    """A conflict leaves no series and no cell behind."""
    page = Page()
    assert page.commit(0, 1)
    before = plain(page)
    assert page.enter_partials(0, "new", [OTHER]) == Sorted([], [], [0])
    assert plain(page) == before


def test_commit_again_is_the_same_word_or_a_contradiction() -> None:
    """The first number stands."""
    page = Page()
    assert [page.commit(0, n) for n in (2, 2, 3, 0)] == [True, True, False, False]
    assert page.commits == {0: 2}


def test_commit_contradicted_by_a_report_changes_nothing() -> None:
    """A commit of no more microbatches than the highest reported one is not taken."""
    page = Page()
    entered(page, 0, "s", 2)
    before = plain(page)
    assert [page.commit(0, 2), page.commit(0, 0)] == [False, False]
    assert plain(page) == before
    assert page.commit(0, 3)


def test_page_lists_what_is_missing_from_the_front() -> None:
    """The first missing microbatches come ascending, at most as many as asked for."""
    page = Page()
    entered(page, 0, "s", 1)
    assert page.commit(0, 5)
    assert page.missing_microbatches("s", 0, 3) == [0, 2, 3]
    assert page.missing_microbatches("s", 0, 100) == [0, 2, 3, 4]
    assert page.missing_microbatches("never", 0, 2) == [0, 1]
    assert page.missing_microbatches("s", 1, 2) == []


def test_page_of_an_enormous_commit_lists_its_first_gaps() -> None:
    """A commit of 2^31-1 microbatches costs no more than what is asked for."""
    page = Page()
    entered(page, 0, "s", 1)
    assert page.commit(0, 2**31 - 1)
    assert page.missing_microbatches("s", 0, 2) == [0, 2]


def test_page_knows_whether_it_happened_and_whether_work_was_committed() -> None:
    """Scalars say nothing about coverage; a commit of none is no work."""
    page = Page()
    page.enter_scalars(0, "k", [(0, 1.0, 1, Rule.SUM)])
    assert (page.counts_for_coverage, page.worked) == (False, False)
    assert page.commit(0, 0)
    assert (page.counts_for_coverage, page.worked) == (True, False)
    assert page.commit(1, 1)
    assert (page.counts_for_coverage, page.worked) == (True, True)


def test_page_tells_ranks_apart_and_folds_them_together() -> None:
    """A rank's table holds its own; the page's table holds all, with what is global."""
    page = Page()
    entered(page, 0, "s", 0)
    entered(page, 1, "s", 0, 1)
    entered(page, 1, "t", 0)
    values = {}
    for rank, key in ((0, "k"), (GLOBAL, "g")):
        values[key] = ScalarFold.of(2.0, 1, Place(0, 0, rank, 0))
        assert list(page.enter_scalars(rank, key, [(0, 2.0, 1, Rule.SUM)]).accepted) == [0]
        page.fold_scalars(rank, key, values[key])
    eight = Fold(1, 8, 0, 0, 0, 0.0, 0.0)
    own, other = Table(), Table()
    own.series, own.scalars = {"s": eight}, {"k": values["k"]}
    other.series = {"s": eight.merge(eight), "t": eight}
    assert plain([page.table_of(rank) for rank in (0, 1, 2)]) == plain([own, other, Table()])
    assert plain(page.table) == plain(Table.union([own, other, page.table_of(GLOBAL)]))


class Bookkeeping(RuleBasedStateMachine):
    """Counters that are kept against the same facts counted anew, after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self.reported: dict[tuple[str, int], set[int]] = {}
        self.committed: dict[int, int] = {}

    ranks = st.integers(0, 3)
    numbers = st.integers(0, 3)
    series = st.sampled_from("ab")

    @rule(rank=ranks, series=series, microbatches=st.lists(numbers, min_size=1, max_size=5))
    def report(self, rank: int, series: str, microbatches: list[int]) -> None:
        """Report microbatches, known and new, within the commit and beyond."""
        limit = self.committed.get(rank, math.inf)
        known = self.reported.get((series, rank), set())
        new = {m for m in microbatches if m < limit} - known
        found = entered(self.page, rank, series, *microbatches)
        assert {microbatches[i] for i in found.accepted} == new
        assert len(found.accepted) == len(new)
        if new:
            self.reported[series, rank] = known | new

    @rule(rank=ranks, number=numbers)
    def commit(self, rank: int, number: int) -> None:
        """Commit, again or contradictory at times."""
        highest = max(
            (m for (_, r), found in self.reported.items() if r == rank for m in found), default=-1
        )
        allowed = self.committed.get(rank, number) == number and highest < number
        assert self.page.commit(rank, number) is allowed
        if allowed:
            self.committed[rank] = number

    @invariant()
    def counts_are_those_of_the_facts(self) -> None:
        """Completeness of each series, and of all, is by definition."""
        assert self.page.commits == self.committed
        for expected in range(1, 5):
            by_all = len(self.committed) == expected
            done = {
                series: by_all
                and all(
                    self.reported.get((series, rank), set()) == set(range(n))
                    for rank, n in self.committed.items()
                )
                for series in {series for series, _ in self.reported}
            }
            assert {s: self.page.complete_for(s, expected) for s in done} == done
            assert self.page.complete(expected) is (by_all and all(done.values()))
        assert self.page.worked is any(self.committed.values())

    @invariant()
    def recount_changes_nothing(self) -> None:
        """What is derived anew from commits and cells answers as what was kept."""
        again = copy.deepcopy(self.page)
        again.recount()
        assert plain(again.table) == plain(self.page.table)
        for expected in range(1, 5):
            for series in self.page.series:
                assert again.complete_for(series, expected) is self.page.complete_for(
                    series, expected
                )


Bookkeeping.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


class TestBookkeeping(Bookkeeping.TestCase):
    """What is kept about completeness is what the facts say, after any steps."""
