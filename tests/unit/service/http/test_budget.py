"""Bytes of bodies in flight are bounded, and given back however a request ends."""

from __future__ import annotations

import pytest

from rankfold.errors import Overloaded
from rankfold_service.http.budget import Budget


def consumed(budget: Budget, *sizes: int) -> int:
    """Return what a request of these chunks took while it ran."""
    with budget.share() as share:
        for size in sizes:
            share.take(size)
        return budget.taken


def test_budget_counts_what_is_kept_and_gives_it_back() -> None:
    """After a request nothing is taken any more."""
    budget = Budget(10)
    assert consumed(budget, 4, 6) == 10
    assert budget.taken == 0


def test_budget_refuses_what_does_not_fit_and_gives_it_back() -> None:
    """Beyond the limit the request is refused, retryably, and leaves nothing behind."""
    budget = Budget(10)
    with pytest.raises(Overloaded) as refused:
        consumed(budget, 4, 7)
    assert refused.value.retryable
    assert budget.taken == 0


def test_budget_is_shared_by_all_requests() -> None:
    """What one holds, another cannot have."""
    budget = Budget(10)
    with budget.share() as one, budget.share() as other:
        one.take(6)
        with pytest.raises(Overloaded):
            other.take(5)
        other.take(4)
        assert budget.taken == 10
