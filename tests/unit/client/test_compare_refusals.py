"""What cannot be compared is a ValueError at the call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

import rankfold_client as rf
from unit.client.comparing import FORMATS, flushing, tensor

pytestmark = pytest.mark.usefixtures("each_form")


@pytest.mark.parametrize(
    ("a", "b", "extra", "words"),
    [
        (torch.zeros(2, 3), torch.zeros(3, 2), {}, r"b \(3, 2\) and a \(2, 3\)"),
        (torch.zeros(2, device="meta"), torch.zeros(2), {}, "b on cpu and a on meta"),
        (torch.zeros(2).int(), torch.zeros(2), {}, "a must be a float .* torch.int32"),
        (torch.zeros(2), torch.zeros(2).cfloat(), {}, "b must be a float .* torch.complex64"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.ones(3)}, r"mask \(3,\) and a \(2,\)"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.ones(2, device="meta")}, "mask on meta"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.ones(2).cfloat()}, "mask must be bool"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.tensor([0, 2])}, "only 0 and 1, not 2"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.tensor([0, -1])}, "not -1"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.tensor([0, 2**32])}, "only 0 and 1"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.tensor([0, 0.5])}, "between"),
        (torch.zeros(2), torch.zeros(2), {"mask": torch.tensor([0, math.nan])}, "not nan"),
        (torch.zeros(2), torch.zeros(2), {"token_ids": torch.ones(3).int()}, r"token_ids \(3,\)"),
        (torch.zeros(2, 2), torch.zeros(2, 2), {"sample_ids": ["x"]}, "1 names and a has 2 rows"),
    ],
)
def test_compare_refuses_what_does_not_fit(
    a: Tensor, b: Tensor, extra: dict[str, Any], words: str
) -> None:
    """What cannot be compared is a ValueError at the call that names both sides."""
    with pytest.raises(ValueError, match=words):
        rf.compare(a, b, **extra)


TWO = torch.zeros(2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"a": [0.0, 0.0]}, "a must be a torch tensor, not list"),
        ({"b": None}, "b must be a torch tensor, not None"),
        ({"b": np.zeros(2)}, "b must be a torch tensor, not numpy.ndarray"),
        ({"mask": [1, 1]}, "mask must be a torch tensor, not list"),
        ({"token_ids": [1, 2]}, "token_ids must be a torch tensor, not list"),
        ({"a": TWO.to("meta"), "b": TWO.to("meta")}, "a and b must hold values, .* meta"),
        ({"token_ids": torch.ones(2, dtype=torch.int64, device="meta")}, "token_ids must hold"),
        ({"token_ids": TWO}, "token_ids must be integers, not torch.float32"),
        ({"token_ids": TWO.bool()}, "token_ids must be integers, not torch.bool"),
        ({"sample_ids": (name for name in "x")}, "sample_ids must be a sequence .* generator"),
        ({"sample_ids": {0: "x"}}, "sample_ids must be a sequence .* not dict"),
        ({"sample_ids": {"x"}}, "sample_ids must be a sequence .* not set"),
        ({"sample_ids": torch.tensor(0)}, "sample_ids must be a sequence .* not torch.Tensor"),
        ({"sample_ids": 1}, "sample_ids must be a sequence .* not int"),
    ],
)
def test_compare_refuses_what_is_no_dense_tensor(given: dict[str, Any], words: str) -> None:
    """What holds no values to look at is a ValueError that names what was given."""
    with pytest.raises(ValueError, match=words):
        rf.compare(**({"a": TWO, "b": torch.ones(2)} | given))


def test_compare_refuses_a_tensor_of_tensors() -> None:
    """Of a DTensor and its like a rank compares its own part, for others report theirs."""
    with pytest.raises(ValueError, match=r"b must be this rank's own tensor, not .*TwoTensor"):
        rf.compare(TWO, TwoTensor(TWO, TWO))


def test_compare_refuses_what_has_no_float64() -> None:
    """On Apple's GPUs sums could not be exact."""
    on_mps = mock.Mock(spec=Tensor, is_nested=False, layout=torch.strided, dtype=torch.float32)
    del on_mps.__tensor_flatten__
    on_mps.device = torch.device("mps")
    with pytest.raises(ValueError, match="a is on mps, which has no float64"):
        rf.compare(on_mps, TWO)


@pytest.mark.filterwarnings("ignore::UserWarning")  # they call themselves beta
@pytest.mark.parametrize("name", ["a", "b", "mask", "token_ids"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.eye(2).to_sparse(), "a dense tensor, not torch.sparse_coo"),
        (lambda: torch.eye(2).to_sparse_csr(), "a dense tensor, not torch.sparse_csr"),
        (lambda: torch.nested.nested_tensor([torch.ones(1), TWO]), "nested with layout .*jagged"),
        (
            lambda: torch.nested.nested_tensor(
                [torch.ones(1, 2), torch.ones(2, 2)], layout=torch.jagged
            ),
            "nested with layout torch.jagged and two dimensions",
        ),
    ],
)
def test_compare_refuses_sparse_and_nested_tensors(
    name: str, make: Callable[[], Tensor], words: str
) -> None:
    """What keeps its values in another way than dense tensors is named, wherever it is given."""
    with pytest.raises(ValueError, match=f"{name} must be {words}"):
        rf.compare(**({"a": torch.zeros(2, 2), "b": torch.zeros(2, 2)} | {name: make()}))


@pytest.mark.parametrize("flush", [False, True], ids=["gradual", "flushing"])
@pytest.mark.parametrize("dtype", list(FORMATS))
@pytest.mark.parametrize("pattern", [1, -1])
def test_compare_refuses_a_mask_below_the_normal_numbers(
    dtype: torch.dtype, flush: bool, pattern: int
) -> None:
    """A mask of the smallest subnormal is neither 0 nor 1, though the thread reads it as 0."""
    form = FORMATS[dtype]
    smallest = tensor([0, 1 if pattern > 0 else form.sign | 1], dtype)
    fine = tensor([form.sign, form.bias << form.fraction], dtype)  # -0.0 and 1.0
    with flushing(flush):
        with pytest.raises(ValueError, match="mask must hold only 0 and 1"):
            rf.compare(torch.zeros(2), torch.ones(2), smallest)
        assert rf.compare(torch.zeros(2), torch.ones(2), fine).valid == 1
