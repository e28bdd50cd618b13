"""Nested tensors with layout torch.jagged: rows of their own lengths."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import rankfold_client as rf

pytestmark = pytest.mark.usefixtures("each_form")

LENGTHS = (3, 0, 5, 1)


def jagged(values: Tensor, lengths: tuple[int, ...] = LENGTHS) -> Tensor:
    """Return flat values as rows of these lengths."""
    return torch.nested.nested_tensor(list(values.split(lengths)), layout=torch.jagged)


def test_compare_of_jagged_rows_equals_that_of_their_values() -> None:
    """The numbers are those of the values; the position is a row and a column in it."""
    a, b = torch.rand(9), torch.rand(9)
    b[3:] = a[3:]
    b[7] += 2.0
    mask, ids = torch.arange(9) % 4 != 0, torch.arange(9)
    got = rf.compare(
        jagged(a), jagged(b), jagged(mask), token_ids=jagged(ids), sample_ids=["u", "v", "w", "x"]
    )
    flat = rf.compare(a, b, mask)
    assert replace(got, worst=None) == replace(flat, worst=None)
    assert flat.worst is not None
    assert got.worst == flat.worst._replace(position=(2, 4), token_id=7, sample="w")


@pytest.mark.parametrize("place", range(9))
def test_compare_finds_each_jagged_position(place: int) -> None:
    """Empty rows hold no position."""
    a = torch.zeros(9)
    b = a.clone()
    b[place] = 1.0
    worst = rf.compare(jagged(a), jagged(b)).worst
    assert worst is not None
    assert jagged(torch.arange(9)).unbind()[worst.position[0]][worst.position[1]] == place


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_compare_takes_jagged_tensors_in_any_mode(inference: bool, inside: bool) -> None:
    """Made inside of inference mode or outside, compared inside or outside, with gradients."""
    with torch.inference_mode(inference and inside):
        a = jagged(torch.zeros(9))
    if not (inference and inside):
        a.requires_grad_()
    with torch.inference_mode(inference):
        assert rf.compare(a, a * 1).count == 0


def test_compare_reads_jagged_rows_with_gaps() -> None:
    """A narrowed view, whose rows do not follow each other in memory, compares like its copy."""
    whole = torch.arange(12.0).view(2, 6)
    starts, lengths = torch.tensor([1, 2]), torch.tensor([2, 3])
    view = torch.nested.narrow(whole, 1, starts, lengths, layout=torch.jagged)
    copy = jagged(torch.tensor([1.0, 2.0, 8.0, 9.0, 10.0]), (2, 3))
    got = rf.compare(view, copy)
    assert (got.valid, got.count) == (5, 0)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (torch.zeros(9), "both be nested or neither"),
        (jagged(torch.zeros(9), (9,)), "differ in shape"),
        (jagged(torch.zeros(8), (3, 0, 5, 0)), "must have the same rows"),
        (jagged(torch.zeros(9), (0, 3, 5, 1)), "must have the same rows"),
    ],
)
def test_compare_refuses_other_jagged_rows(other: Tensor, words: str) -> None:
    """Rows that do not begin and end at the same places cannot be compared."""
    with pytest.raises(ValueError, match=words):
        rf.compare(jagged(torch.zeros(9)), other)
    with pytest.raises(ValueError, match=words):
        rf.compare(jagged(torch.zeros(9)), jagged(torch.zeros(9)), mask=other)


def test_compare_refuses_names_for_other_than_the_rows() -> None:
    """There is a name for each row."""
    a = jagged(torch.zeros(9))
    with pytest.raises(ValueError, match="3 names and a has 4 rows"):
        rf.compare(a, a, sample_ids=["x", "y", "z"])
