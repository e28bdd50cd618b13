"""Refuses arguments that can never be reported, at the call that gave them: with ValueError."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import SupportsFloat, SupportsIndex

from torch import Tensor

from rankfold.names import name_fault
from rankfold.partial import MAX_INDEX
from rankfold.wire import MAX_META, MAX_META_VALUE
from rankfold_client.report import printable


def to_number(value: SupportsFloat) -> float:
    """Return a number, or a tensor of one element, as a double."""
    if isinstance(value, Tensor):
        if value.numel() != 1 or value.is_complex():
            raise ValueError(f"value must hold one real number, not {tuple(value.shape)}")
        value = value.detach()
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"value must be a number that a double holds: {error}") from None


def checked_meta(meta: Mapping[str, str] | None) -> dict[str, str]:
    """Return the strings that describe an attempt, if they can be reported."""
    told = {str(name): str(text) for name, text in (meta or {}).items()}
    if len(told) > MAX_META:
        raise ValueError(f"meta must have at most {MAX_META} members, not {len(told)}")
    for name, text in told.items():
        check_name("meta's name", name)
        if text != printable(text[:MAX_META_VALUE]):
            raise ValueError(
                f"meta {name!r} must have at most {MAX_META_VALUE} characters, none of control"
            )
    return told


def check_name(what: str, name: object, *, in_path: bool = False) -> None:
    """Refuse a name that the contract does not allow."""
    fault = name_fault(name, in_path=in_path) if isinstance(name, str) else "must be a string"
    if fault:
        raise ValueError(f"{what} {name!r} {fault}")


def to_index(what: str, value: SupportsIndex) -> int:
    """Return the index of an iteration or a microbatch."""
    return to_integer(what, value, MAX_INDEX)


def to_integer(what: str, value: SupportsIndex, most: int) -> int:
    """Return an integer from 0 to `most`, whatever type it comes in; a bool is none."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not 0 <= number <= most:
        raise ValueError(f"{what} must be an integer from 0 to {most}, not {value!r}")
    return number
