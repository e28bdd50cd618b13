"""Refuses arguments that can never be reported, at the call that gave them: with ValueError."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import SupportsFloat, SupportsIndex

from torch import Tensor

from rankfold.names import name_fault
from rankfold.partial import MAX_COUNT, MAX_INDEX, Partial, Worst
from rankfold.wire import MAX_META, MAX_META_VALUE
from rankfold_client.report import printable


def to_number(value: SupportsFloat, what: str = "value") -> float:
    """Return a number, or a tensor of one element, as a double."""
    if isinstance(value, Tensor):
        if value.numel() != 1 or value.is_complex() or value.is_meta:
            raise ValueError(f"{what} must hold one real number, not {tuple(value.shape)}")
        value = value.detach()
    if isinstance(value, str | bytes | bytearray):
        raise ValueError(f"{what} must be a number, not {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{what} must be a number that a double holds: {error}") from None


def checked_partial(partial: Partial) -> Partial:
    """Return a partial whose numbers are Python's own, if it can be reported.

    Statistics computed elsewhere may come as scalars of numpy, which JSON does not know.
    """
    if not isinstance(partial, Partial):
        raise ValueError(f"partial must be a Partial, not {type(partial).__name__}")
    p = partial
    told = Partial(
        valid=to_integer("valid", p.valid, MAX_COUNT),
        count=to_integer("count", p.count, MAX_COUNT),
        max=None if p.max is None else _to_real("max", p.max),
        sum=_to_real("sum", p.sum),
        nonfinite=to_integer("nonfinite", p.nonfinite, MAX_COUNT),
        sum_sq=None if p.sum_sq is None else _to_real("sum_sq", p.sum_sq),
        ulp_max=None if p.ulp_max is None else to_integer("ulp_max", p.ulp_max, MAX_COUNT),
        total=None if p.total is None else to_integer("total", p.total, MAX_COUNT),
        worst=None if p.worst is None else _checked_worst(p.worst),
    )
    faults = told.faults()
    if faults:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in faults))
    return told


def _checked_worst(worst: Worst) -> Worst:
    if not isinstance(worst, Worst):
        raise ValueError(f"worst must be a Worst, not {type(worst).__name__}")
    try:
        row, column = worst.position
    except (TypeError, ValueError):
        raise ValueError(
            f"worst.position must be a row and a column, not {worst.position!r}"
        ) from None
    if not isinstance(worst.sample, str | None):
        raise ValueError(f"worst.sample must be a string, not {worst.sample!r}")
    token = None if worst.token_id is None else _index(worst.token_id)
    if token is None and worst.token_id is not None:
        raise ValueError(f"worst.token_id must be an integer, not {worst.token_id!r}")
    return Worst(
        position=(
            to_integer("worst.position", row, MAX_COUNT),
            to_integer("worst.position", column, MAX_COUNT),
        ),
        a=_to_real("worst.a", worst.a),
        b=_to_real("worst.b", worst.b),
        ulp=to_integer("worst.ulp", worst.ulp, MAX_COUNT),
        token_id=token,
        sample=worst.sample,
    )


def checked_meta(meta: Mapping[str, str] | None) -> dict[str, str]:
    """Return the strings that describe an attempt, if they can be reported."""
    if not isinstance(meta, Mapping | None):
        raise ValueError(f"meta must be strings by name, not {meta!r}")
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


def check_text(what: str, value: object) -> None:
    """Refuse what is neither a string nor left out."""
    if not isinstance(value, str | None):
        raise ValueError(f"{what} must be a string, not {type(value).__name__}")


def check_choice(what: str, names: Sequence[str] | None) -> None:
    """Refuse a choice of nothing, which a query cannot say: it would be one of all."""
    if names is not None and not names:
        raise ValueError(f"{what} must name at least one, or be None for all")


def to_bound(what: str, value: SupportsIndex) -> int:
    """Return how many there may be of something: at least one."""
    number = _index(value)
    if number is None or number < 1:
        raise ValueError(f"{what} must be an integer from 1, not {value!r}")
    return number


def to_index(what: str, value: SupportsIndex) -> int:
    """Return the index of an iteration or a microbatch."""
    return to_integer(what, value, MAX_INDEX)


def to_integer(what: str, value: SupportsIndex, most: int) -> int:
    """Return an integer from 0 to `most`, whatever type it comes in; a bool is none."""
    number = _index(value)
    if number is None or not 0 <= number <= most:
        raise ValueError(f"{what} must be an integer from 0 to {most}, not {value!r}")
    return number


def _index(value: SupportsIndex) -> int | None:
    """Return a true integer as Python's own; None for a bool and for anything else."""
    try:
        return None if _is_bool(value) else int(operator.index(value))
    except TypeError:
        return None


def _to_real(what: str, value: SupportsFloat) -> float:
    if _is_bool(value):
        raise ValueError(f"{what} must be a number, not {value!r}")
    return to_number(value, what)


def _is_bool(value: object) -> bool:
    """Say whether a value is a truth, also of numpy or torch."""
    dtype = getattr(value, "dtype", None)
    return isinstance(value, bool) or (dtype is not None and str(dtype) in ("bool", "torch.bool"))
