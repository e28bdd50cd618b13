from __future__ import annotations

from rankfold_client.counts import REMEMBERED, Counts


def test_counts_number_the_calls_of_each_name_and_iteration() -> None:
    """Each (iteration, name) counts from 0 by itself."""
    counts = Counts()
    calls = [(0, "s"), (0, "s"), (0, "t"), (1, "s"), (0, "s")]
    assert [counts.count(i, name, None) for i, name in calls] == [0, 1, 0, 0, 2]
    assert [counts.largest(i) for i in (0, 1, 2)] == [3, 1, 0]


def test_counts_go_on_after_a_given_index() -> None:
    """A given index counts, and the next call follows the largest."""
    counts = Counts()
    assert [counts.count(0, "s", m) for m in (5, None, 2, None)] == [5, 6, 2, 7]
    assert counts.largest(0) == 8


def test_counts_forget_iterations_of_long_ago() -> None:
    """Memory does not grow with the run."""
    counts = Counts()
    for iteration in range(REMEMBERED + 1):
        counts.count(iteration, "s", None)
    assert counts.largest(0) == 0
    assert counts.largest(1) == counts.largest(REMEMBERED) == 1
