"""Exact equality with an oracle in whole numbers, over tensors that hypothesis makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rankfold_client as rf
from rankfold.partial import MAX_COUNT
from unit.client.comparing import EXAMPLES, FORMATS, INTS, MASKS, check, flushing, inputs, tensor

pytestmark = pytest.mark.usefixtures("each_form")

CASES = json.loads((Path(__file__).parents[2] / "cases" / "comparisons.json").read_text())


@pytest.mark.parametrize("flush", [False, True], ids=["gradual", "flushing"])
@settings(max_examples=EXAMPLES)
@given(drawn=inputs(), mask_dtype=st.sampled_from(MASKS))
def test_compare_equals_an_oracle_in_whole_numbers(
    flush: bool, drawn: Any, mask_dtype: torch.dtype
) -> None:
    """Every dtype pair gives the contract's numbers, whatever the thread does to subnormals."""
    first, second, a, b, mask = drawn
    left, right = tensor(a, first), tensor(b, second)
    wanted = torch.tensor(mask).to(mask_dtype)
    with flushing(flush):
        got = rf.compare(left, right, wanted)
    check(first, second, a, b, mask, got)


@st.composite
def log_probs(draw: st.DrawFn) -> tuple[torch.dtype, list[int], list[int], list[int]]:
    """Draw a dtype, two lists of patterns of which none is above zero, and a mask."""
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    form = FORMATS[dtype]
    two = form.bias + 1 << form.fraction
    zeros = st.sampled_from([0, 0, form.sign])
    awkward = st.sampled_from([1, two >> 1, two - 1, two, two + 1, two + (1 << form.fraction)])
    value = zeros | (awkward | st.integers(1, two)).map(lambda size: size | form.sign)
    size = draw(st.integers(1, 12))
    a, b = (draw(st.lists(value, min_size=size, max_size=size)) for _ in range(2))
    mask = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    times = draw(st.sampled_from([1, 1, 5]))
    return dtype, a * times, b * times, mask * times


@settings(max_examples=2 * EXAMPLES)
@given(drawn=log_probs())
def test_compare_of_log_probs_of_which_some_are_zero_equals_the_oracle(drawn: Any) -> None:
    """A zero beside negative values is as many steps away as it is, whichever zero it is."""
    dtype, a, b, mask = drawn
    check(
        dtype, dtype, a, b, mask, rf.compare(tensor(a, dtype), tensor(b, dtype), torch.tensor(mask))
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("least", [-1.5, -2.5])
def test_compare_counts_the_steps_from_a_zero(dtype: torch.dtype, least: float) -> None:
    """The steps between 0 and a log-prob are its magnitude's pattern, below 2 and above."""
    a = torch.tensor([0.0, -0.25, -0.0, least], dtype=dtype)
    b = torch.tensor([least, -0.5, 0.0, least], dtype=dtype)
    pattern = min(int(b[:1].abs().view(INTS[8 * dtype.itemsize])), MAX_COUNT)
    assert rf.compare(a, b).ulp_max == pattern
    assert rf.compare(a, b, torch.tensor([True] * 4)).ulp_max == pattern
    assert rf.compare(a, b, torch.tensor([False, True, True, True])).count == 1


def number(value: float | str) -> float:
    """Return a case's number, of which some are words."""
    return float(value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_compare_answers_the_case(case: dict[str, Any]) -> None:
    """Numbers that public frameworks got wrong come out as the cases say."""
    dtype = getattr(torch, case["dtype"])
    a, b = (torch.tensor([number(x) for x in case[name]], dtype=dtype) for name in "ab")
    expect = dict(case["expect"])
    if case["name"] == "float64_one_ulp":
        # The case counts float32 steps; the contract counts them in the compared dtype.
        expect["ulp_max"] = 1
    got = rf.compare(a, b, torch.tensor(case["mask"]))
    fields = {name: getattr(got, name) for name in expect}
    assert fields.pop("sum") == pytest.approx(expect.pop("sum"), rel=1e-9, abs=0)
    assert fields == expect
