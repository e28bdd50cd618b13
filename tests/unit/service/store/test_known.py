"""What an aggregator remembers of the shared store is bounded, and newest use stays."""

from __future__ import annotations

import pytest

from rankfold.facts import Facts
from rankfold.rules import RuleSet
from rankfold_service.store.pack import pack_facts
from rankfold_service.store.postgres import known
from rankfold_service.store.postgres.known import KnownRun, KnownRuns, Packed, Place

FACTS = pack_facts(Facts(RuleSet()))


def nothing(run: int, rank: int, attempt: int, first: int) -> dict[Place, Packed]:
    """Read no pages."""
    raise AssertionError((run, rank, attempt, first))


def remember(runs: KnownRuns, name: str, books: int) -> KnownRun:
    """Remember a run with so many books."""
    run = runs.know(("p", name), hash(name), 1, FACTS)
    for rank in range(books):
        run.open_book(rank, 0, nothing)
    return run


def test_runs_that_were_not_asked_for_longest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Using a run again makes it the newest; the last one stays however large it is."""
    monkeypatch.setattr(known, "MOST_BOOKS", 5)
    runs = KnownRuns(RuleSet())
    for name in "abc":
        remember(runs, name, 2)
    remember(runs, "a", 2)
    runs.bound()
    assert [name for name in "abc" if runs.get(("p", name))] == ["a", "c"]
    remember(runs, "huge", 9)
    runs.bound()
    assert [name for name in ("a", "c", "huge") if runs.get(("p", name))] == ["huge"]


def test_run_that_was_begun_anew_is_another() -> None:
    """What was known of the deleted one is of no use."""
    runs = KnownRuns(RuleSet())
    remember(runs, "a", 2)
    assert runs.know(("p", "a"), 7, 1, FACTS).books == {}
