"""What a comparison takes: refuses, with ValueError, what it could not be right about."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check_operands(a: object, b: object, mask: object, token_ids: object, samples: object) -> None:
    """Refuse what does not fit together or holds no values; see `rankfold_client.compare`."""
    left, right = _checked_floats("a", a), _checked_floats("b", b)
    _check_alike("b", right, left)
    if mask is not None:
        masking = _checked_tensor("mask", mask)
        if masking.dtype not in INTEGERS + FLOATS:
            raise ValueError(f"mask must be bool or hold 0 and 1, not {masking.dtype}")
        _check_alike("mask", masking, left)
    # Now all of them are where `a` is.
    _check_held("a and b", left)
    if token_ids is not None:
        _check_token_ids(_checked_tensor("token_ids", token_ids), left)
    if samples is not None:
        rows, names = prod(left.shape[:-1]), _length(samples)
        if names != rows:
            raise ValueError(f"sample_ids has {names} names and a has {rows} rows")


def plain(tensor: Tensor) -> Tensor:
    """Return a tensor outside of autograd whose memory holds its values, no negated ones."""
    return tensor.detach().resolve_conj().resolve_neg()


def _checked_tensor(name: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a torch tensor, not {_kind(value)}")
    if value.is_nested:
        raise ValueError(f"{name} must be one tensor with a shape, not a nested one; pad it")
    if value.layout != torch.strided:
        raise ValueError(f"{name} must be a dense tensor, not {value.layout}")
    return value


def _checked_floats(name: str, value: object) -> Tensor:
    tensor = _checked_tensor(name, value)
    if tensor.dtype not in FLOATS:
        raise ValueError(f"{name} must be a float tensor of 16, 32 or 64 bits, not {tensor.dtype}")
    return tensor


def _check_alike(name: str, tensor: Tensor, a: Tensor) -> None:
    if tensor.shape != a.shape:
        raise ValueError(f"{name} {tuple(tensor.shape)} and a {tuple(a.shape)} differ in shape")
    if tensor.device != a.device:
        raise ValueError(f"{name} on {tensor.device} and a on {a.device} differ in device")


def _check_token_ids(ids: Tensor, a: Tensor) -> None:
    if ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
        raise ValueError(f"token_ids must be integers, not {ids.dtype}")
    if ids.shape != a.shape:
        raise ValueError(f"token_ids {tuple(ids.shape)} and a {tuple(a.shape)} differ in shape")
    _check_held("token_ids", ids)


def _check_held(name: str, tensor: Tensor) -> None:
    if tensor.is_meta:
        raise ValueError(f"{name} must hold values, which no tensor on the meta device does")


def _length(samples: object) -> int:
    """Return how many names there are in what can be indexed by row."""
    sequence: Any = samples
    if hasattr(samples, "__getitem__") and not isinstance(samples, Mapping):
        try:
            return len(sequence)
        except TypeError:
            pass
    raise ValueError(
        f"sample_ids must be a sequence with a name for each row, not {_kind(samples)}"
    )


def _kind(value: object) -> str:
    kind = type(value)
    if value is None:
        return "None"
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
