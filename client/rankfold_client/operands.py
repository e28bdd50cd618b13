"""What a comparison takes: refuses, with ValueError, what it could not be right about."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from rankfold_client.layouts import Layout, layout_of

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True, slots=True)
class Operands:
    """Dense tensors outside of autograd, of one shape and on one device, and their names.

    Attributes:
        a: the trainer's values.
        b: the rollout's values.
        mask: where positions count; None for all.
        token_ids: integers.
        samples: a name for each row.
        columns: the length of a row.
        offsets: of jagged rows, where each begins and the last ends: as the first tensor has
            them, then those of the others that must hold the same. The tensors are then flat.
    """

    a: Tensor
    b: Tensor
    mask: Tensor | None
    token_ids: Tensor | None
    samples: tuple[Any, ...] | None
    columns: int
    offsets: tuple[Tensor, ...]

    @property
    def layout(self) -> Layout:
        """Of the compared dtype."""
        return layout_of(self.a.dtype, self.b.dtype)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that are there: a, b, mask, token ids."""
        return [t for t in (self.a, self.b, self.mask, self.token_ids) if t is not None]


def position(place: int, columns: int, offsets: Sequence[int] | None) -> tuple[int, int]:
    """Return the row and the column of a flat index; see `Operands`."""
    if offsets is None:
        return divmod(place, columns)
    row = bisect_right(offsets, place) - 1
    return row, place - offsets[row]


def operands(a: object, b: object, mask: object, token_ids: object, samples: object) -> Operands:
    """Return what is compared; see `rankfold_client.compare`.

    Raises:
        ValueError: it does not fit together or holds no values.
    """
    left, right = _checked_floats("a", a), _checked_floats("b", b)
    _check_alike("b", right, left)
    given = [left, right]
    if mask is not None:
        masking = _checked_tensor("mask", mask)
        if masking.dtype not in INTEGERS + FLOATS:
            raise ValueError(f"mask must be bool or hold 0 and 1, not {masking.dtype}")
        _check_alike("mask", masking, left)
        given.append(masking)
    # Now all of them are where `a` is.
    _check_held("a and b", left)
    if token_ids is not None:
        given.append(_checked_ids(_checked_tensor("token_ids", token_ids), left))
    names = None if samples is None else _names(samples)
    rows = left.shape[0] if left.is_nested else prod(left.shape[:-1])
    if names is not None and len(names) != rows:
        raise ValueError(f"sample_ids has {len(names)} names and a has {rows} rows")
    flat = [_plain(tensor) for tensor in given]
    offsets = [_offsets(tensor) for tensor in flat] if left.is_nested else []
    if left.is_nested:
        flat = [_values(tensor) for tensor in flat]
        _check_sizes(flat)
    rest = iter(flat[2:])
    return Operands(
        flat[0],
        flat[1],
        None if mask is None else next(rest),
        None if token_ids is None else next(rest),
        names,
        left.shape[-1] if left.dim() and not left.is_nested else 1,
        (*offsets[:1], *(other for other in offsets[1:] if other is not offsets[0])),
    )


def _plain(tensor: Tensor) -> Tensor:
    """Return a tensor outside of autograd whose memory holds its values, without gaps."""
    if tensor.is_nested:
        with torch.inference_mode(tensor.is_inference()):
            return tensor.detach().contiguous()
    return tensor.detach().resolve_conj().resolve_neg()


def _values(tensor: Tensor) -> Tensor:
    with torch.inference_mode(tensor.is_inference()):
        return tensor.values()


def _offsets(tensor: Any) -> Tensor:
    offsets: Tensor = tensor.offsets()
    return offsets


def _checked_tensor(name: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a torch tensor, not {_kind(value)}")
    if value.is_nested:
        if value.layout != torch.jagged or value.dim() != 2:
            raise ValueError(f"{name} must be nested with layout torch.jagged and two dimensions")
    elif value.layout != torch.strided:
        raise ValueError(f"{name} must be a dense tensor, not {value.layout}")
    elif hasattr(value, "__tensor_flatten__"):
        raise ValueError(f"{name} must be this rank's own tensor, not {_kind(value)}")
    return value


def _checked_floats(name: str, value: object) -> Tensor:
    tensor = _checked_tensor(name, value)
    if tensor.dtype not in FLOATS:
        raise ValueError(f"{name} must be a float tensor of 16, 32 or 64 bits, not {tensor.dtype}")
    if tensor.device.type == "mps":
        raise ValueError(f"{name} is on mps, which has no float64; compare copies on the CPU")
    return tensor


def _check_alike(name: str, tensor: Tensor, a: Tensor) -> None:
    if tensor.is_nested != a.is_nested:
        raise ValueError(f"{name} and a must both be nested or neither")
    # Jagged shapes are equal only where their offsets are one tensor: see `_check_sizes`.
    same = tensor.shape[0] == a.shape[0] if a.is_nested else tensor.shape == a.shape
    if not same:
        raise ValueError(f"{name} {tuple(tensor.shape)} and a {tuple(a.shape)} differ in shape")
    if tensor.device != a.device:
        raise ValueError(f"{name} on {tensor.device} and a on {a.device} differ in device")


def _check_sizes(values: Sequence[Tensor]) -> None:
    """Refuse jagged tensors of other sizes; where rows begin is compared where the values are."""
    sizes = {value.shape[0] for value in values}
    if len(sizes) > 1:
        raise ValueError(f"jagged tensors must have the same rows, not of {sorted(sizes)} elements")


def _checked_ids(ids: Tensor, a: Tensor) -> Tensor:
    if ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
        raise ValueError(f"token_ids must be integers, not {ids.dtype}")
    _check_held("token_ids", ids)
    _check_alike("token_ids", ids, a)
    # torch picks nothing out of its other unsigned integers.
    return ids if ids.dtype in INTEGERS else ids.long()


def _check_held(name: str, tensor: Tensor) -> None:
    if tensor.is_meta:
        raise ValueError(f"{name} must hold values, which no tensor on the meta device does")


def _names(samples: object) -> tuple[Any, ...]:
    """Return the names in what can be indexed by row."""
    sequence: Any = samples
    if hasattr(samples, "__getitem__") and not isinstance(samples, Mapping | Tensor):
        try:
            len(sequence)
            return tuple(sequence)
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
