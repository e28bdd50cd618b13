"""Columns come back as they were given, to the bit."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rankfold_service.store.columns import (
    ColumnReader,
    anything,
    doubles,
    exact,
    integers,
    pack_as,
    unpack_as,
)

WHOLE = st.none() | st.integers() | st.integers(-(2**63), 2**63 - 1)
REAL = st.none() | st.floats()


def bits(values: list[Any]) -> list[Any]:
    """Return doubles as text that tells every bit that counts; NaN has one."""
    return ["nan" if v is not None and math.isnan(v) else v and v.hex() for v in values]


@given(st.lists(WHOLE), st.lists(REAL), st.lists(st.integers()), st.lists(st.text()))
def test_columns_come_back(
    whole: list[Any], real: list[Any], sums: list[int], words: list[str]
) -> None:
    """Of any values, one after the other."""
    data = integers(whole) + doubles(real) + exact(sums) + anything(words) + integers([1])
    read = ColumnReader(data)
    assert read.column() == whole
    assert bits(read.column()) == bits(real)
    assert (read.exact(), read.column(), read.column()) == (sums, words, [1])


def test_columns_of_numbers_are_small() -> None:
    """As many bytes as the largest number needs; the zeros that end an exact sum cost nothing."""
    assert len(doubles([0.5] * 100)) < 810
    sizes = [len(integers([top] * 100)) for top in (255, 2**16 - 1, 2**32 - 1, 2**63 - 1, -1)]
    assert sizes == [105, 205, 405, 805, 805]
    assert len(exact([3 << 1074] * 100)) < 320


def test_columns_are_little_endian_everywhere() -> None:
    """A store may be read on a machine of the other order."""
    assert pack_as("H", [1]) == b"\1\0"
    assert unpack_as("I", 1, b"\1\0\0\0") == (1,)
