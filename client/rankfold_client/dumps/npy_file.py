"""The tensor of an `.npy` of NumPy, which is called as the file is; it stays there, mapped."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy
import torch
from torch import Tensor

from rankfold_client.dumps.entries import Dump, Index
from rankfold_client.dumps.npz_file import entry_of, header


def read(path: Path) -> Dump:
    """Return what the file holds."""
    with path.open("rb") as file:
        shape, columns_first, dtype = header(file, path.name)
        start = file.tell()

    def load() -> Tensor:
        size = start + math.prod(shape) * dtype.itemsize
        if path.stat().st_size != size:
            raise ValueError("it does not hold what its header says")
        if size == start:  # of which there is nothing to map
            return torch.from_numpy(numpy.empty(shape, dtype))
        order: Literal["F", "C"] = "F" if columns_first else "C"
        array = numpy.memmap(path, dtype, "r", offset=start, shape=shape, order=order)
        if not dtype.isnative:
            return torch.from_numpy(array.astype(dtype.newbyteorder("=")))
        return torch.from_numpy(array)

    dump = Dump(path)
    dump.add(path.stem, Index(), entry_of(dtype, load))
    return dump
