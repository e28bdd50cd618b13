"""The bit layouts of the two dtypes in which tensors are compared."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Layout:
    """The bit layout of a compared dtype, as patterns of its integers.

    Attributes:
        dtype: the floats.
        ints: the integers of the same width.
        width: bits.
        infinity: the pattern of infinity, above every finite magnitude.
        two: the pattern of 2, half of what -0.0 and +0.0 are apart as integers.
    """

    dtype: torch.dtype
    ints: torch.dtype
    width: int
    infinity: int
    two: int

    @property
    def sign(self) -> int:
        """The pattern of -0.0, as the signed integer that it is."""
        return -(1 << self.width - 1)

    @property
    def magnitude(self) -> int:
        """All bits but the sign."""
        return (1 << self.width - 1) - 1


SINGLE = Layout(torch.float32, torch.int32, 32, 0xFF << 23, 1 << 30)
DOUBLE = Layout(torch.float64, torch.int64, 64, 0x7FF << 52, 1 << 62)


def layout_of(*dtypes: torch.dtype) -> Layout:
    """Return what values of these dtypes are compared as."""
    return DOUBLE if torch.float64 in dtypes else SINGLE
