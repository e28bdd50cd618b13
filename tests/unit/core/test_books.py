"""Books kept rank by rank answer as one ledger of the whole run does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold import books
from rankfold.errors import RequestError
from rankfold.facts import Facts
from rankfold.ledger import KEPT_ITERATIONS, Ledger
from rankfold.page import GLOBAL, Page
from rankfold.rules import RuleSet
from rankfold.wire import Receipt, Report
from unit.core.builders import dirty, ledger_of, partial, picture, plain, report, scalar
from unit.core.worlds import Parts, one_report, worlds

thorough = settings(max_examples=150, deadline=None)


class Shared:
    """A run of which each rank has its own books, and what reads them as one."""

    def __init__(self) -> None:
        self.facts = Facts(RuleSet())
        self.books: dict[int, Ledger] = {}

    def apply(self, sent: Report, now: float, keep: int = KEPT_ITERATIONS) -> Receipt:
        """Take a report in the books of its rank alone; others hear of a cut when they are read."""
        own = {
            rank: self.books.get(rank) or Ledger("default", "run", self.facts, of=rank)
            for rank in books.ranks_of(sent)
        }
        receipt = books.apply(self.facts, own, sent, now, keep)
        self.books.update(own)
        return receipt

    def gather(self) -> Ledger:
        """Return the run as readers see it."""
        for book in self.books.values():
            book.heed_cuts()
        return books.gather("default", "run", self.facts, self.books, self)

    def load(self, attempt: int, iteration: int) -> Page:
        """Return an iteration over all ranks."""
        parts = [book.attempts.get(attempt) for book in self.books.values()]
        pages = [part.page(iteration) for part in parts if part and iteration in part.paged]
        return books.gather_pages(pages)

    def put(self, attempt: int, iteration: int, page: Page) -> None:
        """Readers change nothing."""
        raise AssertionError((attempt, iteration, page))


def outcome(run: Ledger | Shared, sent: Report, now: float) -> Receipt | str:
    """Return what became of a report: its receipt, or why it was refused."""
    try:
        return run.apply(sent, now)
    except RequestError as error:
        return repr(error)


@thorough
@given(worlds(contradictory=True))
def test_books_of_ranks_answer_as_the_ledger_of_the_run(parts: list[Parts]) -> None:
    """Receipts, refusals and every answer are the same, conflicts, restarts and all."""
    whole, shared = Ledger("default", "run", Facts(RuleSet())), Shared()
    for now, part in enumerate(parts):
        sent = one_report(*part)
        assert outcome(shared, sent, now) == outcome(whole, sent, now)
    assert picture(shared.gather()) == picture(whole)
    assert plain(shared.facts) == plain(whole.facts)


@thorough
@given(worlds(contradictory=True))
def test_divided_ledger_gathers_to_itself(parts: list[Parts]) -> None:
    """Taking a ledger apart into books loses nothing, and they go on as it does."""
    half = len(parts) // 2
    whole = ledger_of(*(one_report(*part) for part in parts[:half]))
    shared = Shared()
    shared.facts, shared.books = whole.facts, books.divide(whole)
    if half:
        assert picture(shared.gather()) == picture(whole)
    rest = [one_report(*part) for part in parts[half:]]
    again = ledger_of(*(one_report(*part) for part in parts[:half]))
    assert [outcome(shared, r, 9.0) for r in rest] == [outcome(again, r, 9.0) for r in rest]
    assert picture(shared.gather()) == picture(again)


@given(st.randoms(use_true_random=False))
def test_books_gather_in_any_order(chance: random.Random) -> None:
    """Which rank is read first changes no answer."""
    shared = Shared()
    for rank in range(5):
        rows = [dirty(i, rank) for i in range(3)]
        shared.apply(report(rank, rows, commits=[(i, rank) for i in range(3)], world_size=6), 1.0)
    before = picture(shared.gather())
    order = list(shared.books.items())
    chance.shuffle(order)
    shared.books = dict(order)
    assert picture(shared.gather()) == before


def test_report_is_entered_in_the_books_of_its_rank_alone() -> None:
    """What belongs to no rank has books of its own, opened only for it."""
    assert books.ranks_of(report(3, [partial()], [scalar("loss")])) == [3]
    shared = Shared()
    mixed = [scalar("loss", value=1.0), scalar("tokens", value=2.0, is_global=True)]
    assert shared.apply(report(3, [partial()], mixed), 1.0) == Receipt(3, 0, 0)
    assert sorted(shared.books) == [GLOBAL, 3]
    assert list(shared.books[GLOBAL].attempts[0].reporters) == []
    tables = {rank: book.totals("all") for rank, book in shared.books.items()}
    assert {rank: sorted(t.scalars) for rank, t in tables.items()} == {3: ["loss"], -1: ["tokens"]}


def test_refused_report_leaves_the_books_as_they_were() -> None:
    """A report is applied whole or not at all."""
    shared = Shared()
    shared.apply(report(0, [partial()], world_size=2), 1.0)
    before = picture(shared.gather()), plain(shared.facts)
    with pytest.raises(RequestError):
        shared.apply(report(1, [partial()], world_size=3), 2.0)
    assert (picture(shared.gather()), plain(shared.facts)) == before
