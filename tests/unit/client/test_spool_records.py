from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.partial import Partial, Worst
from rankfold_client.items import FINISH, OPEN, Item, commit_item, partial_item, scalar_item
from rankfold_client.spool.records import from_record, to_record

counts = st.integers(0, 2**53 - 1)
indices = st.integers(0, 2**31 - 1)
numbers = st.floats(allow_nan=False)
names = st.text(min_size=1, max_size=20)
worsts = st.builds(
    Worst, st.tuples(indices, indices), numbers, numbers, counts, st.none() | counts,
    st.none() | st.text(st.characters(exclude_categories=()), max_size=20),
)  # fmt: skip
partials = st.builds(
    Partial, counts, counts, st.none() | numbers, numbers, counts, st.none() | numbers,
    st.none() | counts, st.none() | counts, st.none() | worsts,
)  # fmt: skip
items = st.one_of(
    st.builds(partial_item, names, indices, indices, partials),
    st.builds(scalar_item, names, indices, indices, numbers, counts, st.none() | names,
              st.booleans()),
    st.builds(commit_item, indices, indices),
    st.just(OPEN),
    st.just(FINISH),
)  # fmt: skip


@given(items)
def test_record_gives_back_its_item(item: Item) -> None:
    """Every item comes back equal, down to the last bit of its numbers."""
    assert from_record(to_record(item)) == item


def test_record_keeps_nan() -> None:
    """The one number that equals nothing comes back too."""
    back = from_record(to_record(scalar_item("k", 0, 0, math.nan, 1, None, False)))
    assert back[:4] == ("s", "k", 0, 0)
    assert math.isnan(back[4])


def test_record_stays_small_whatever_a_sample_is_called() -> None:
    """Of a sample's name as much is kept as may travel."""
    worst = Worst((0, 0), 0.0, 1.0, 1, None, "x" * 1_000_000)
    item = partial_item("s", 0, 0, Partial(1, 1, 1.0, 1.0, worst=worst))
    assert len(to_record(item)) < 1000


@pytest.mark.parametrize(
    "record",
    [
        *(b"", b"{}", b"[]", b"3", b"null", b"\xff", b"[" * 100_000, b'[["p"]]', b'["x"]'),
        *(b'["p"]', b'["p",1,2]', b'["c",1]', b'["p","s",0,0,1,1,1,1,0,null,null,null,5]'),
    ],
)
def test_record_of_another_kind_is_refused(record: bytes) -> None:
    """What this version does not write is a ValueError and nothing else."""
    with pytest.raises(ValueError):  # noqa: PT011 - json says what it is in many ways
        from_record(record)
