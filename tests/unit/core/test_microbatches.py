"""A set of microbatches behaves as a set, whatever the order in which they come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rankfold.microbatches import Microbatches

NUMBERS = st.lists(st.integers(0, 12), max_size=14)


@given(NUMBERS)
def test_microbatches_are_a_set(numbers: list[int]) -> None:
    """Length, order, membership and the highest are those of a set."""
    known, same = Microbatches(numbers), set(numbers)
    assert (list(known), len(known)) == (sorted(same), len(same))
    assert known.highest == max(same, default=-1)
    assert [n in known for n in range(15)] == [n in same for n in range(15)]


@given(NUMBERS, NUMBERS, st.none() | st.integers(0, 14))
def test_microbatches_go_on_only_with_what_follows(
    numbers: list[int], following: list[int], limit: int | None
) -> None:
    """Numbers go on where they are the next ones, below the limit; else nothing happens."""
    known = Microbatches(numbers)
    before = list(known)
    goes_on = (
        before == list(range(len(before)))
        and following == list(range(len(before), len(before) + len(following)))
        and (limit is None or len(before) + len(following) <= limit)
    )
    assert known.go_on(following, limit) is goes_on
    assert list(known) == before + (following if goes_on else [])


def test_microbatches_from_nought_on() -> None:
    """The first so many."""
    assert list(Microbatches.first(3)) == [0, 1, 2]
    assert list(Microbatches.first(0)) == []
