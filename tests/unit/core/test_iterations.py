"""Sets of iteration numbers as runs without a gap."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rankfold.iterations import Iterations

some = st.lists(st.integers(0, 12), max_size=15)
bound = st.none() | st.integers(-2, 14)


@given(some, some, bound, bound)
def test_iterations_are_a_sorted_set(
    numbers: list[int], others: list[int], first: int | None, last: int | None
) -> None:
    """Any entering order gives the ascending set, and any range of it, empty ones too."""
    found = Iterations()
    for number in numbers:
        found.add(number)
    ascending = sorted(set(numbers))
    low = -1 if first is None else first
    high = 99 if last is None else last
    inside = [n for n in ascending if low <= n <= high]
    assert list(found.without(Iterations(others))) == [n for n in ascending if n not in others]
    both = sorted({*numbers, *others})
    assert list(Iterations.union([found, Iterations(others), Iterations()])) == both
    assert list(found) == list(Iterations(ascending)) == ascending
    assert list(found.descending()) == ascending[::-1]
    assert list(found.between(first, last)) == inside
    assert [found.at(i) for i in found.within(first, last)] == inside
    assert len(found) == len(ascending)
    assert list(Iterations.of_runs(found.runs())) == ascending
    assert Iterations.of_runs(found.runs()).runs() == found.runs() == Iterations(ascending).runs()
    assert all(a[1] + 1 < b[0] for a, b in pairwise(found.runs()))
    assert [n for n in range(-1, 14) if n in found] == ascending
