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
from unit.client.comparing import EXAMPLES, MASKS, check, flushing, inputs, tensor

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
