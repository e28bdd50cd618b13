"""A comparison that an accelerator still computes: nothing waits for it but who asks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from rankfold.partial import Partial
from rankfold_client import general
from rankfold_client.blocks import blocks
from rankfold_client.general import Column
from rankfold_client.operands import Operands, position
from rankfold_client.stats import Label, Stats

# Elements that are worked on at a time: about 150 MB beside the inputs.
_BLOCK = 1 << 22


class Pending:
    """The partial of a comparison whose statistics are on their way from an accelerator.

    Made by `launch`. It keeps none of the compared tensors.
    """

    def __init__(
        self,
        operands: Operands,
        told: Tensor,
        starts: Sequence[int],
        offsets: Tensor | None,
        event: Any,
    ) -> None:
        self._layout, self._columns = operands.layout, operands.columns
        self._total = operands.a.numel()
        self._samples, self._labelled = operands.samples, operands.token_ids is not None
        self._told, self._starts, self._offsets, self._event = told, starts, offsets, event
        self._lock = threading.Lock()
        self._result: Partial | Exception | None = None

    def ready(self) -> bool:
        """Say whether `result` would not wait: never waits and never raises, from any thread."""
        if self._result is not None:
            return True
        try:
            return bool(self._event.query())
        except RuntimeError:  # the device failed, which `result` tells
            return True

    def result(self) -> Partial:
        """Return the partial, after waiting for the device where it is not ready.

        Raises:
            ValueError: the mask held another value than 0 and 1, or jagged rows did not begin at
                the same places; only the device could see it.
            RuntimeError: the device failed.
        """
        with self._lock:
            if self._result is None:
                try:
                    self._event.synchronize()
                    self._result = self._read()
                except (ValueError, RuntimeError) as error:
                    self._result = error
            if isinstance(self._result, Exception):
                raise self._result
            return self._result

    def _read(self) -> Partial:
        stats = Stats()
        for start, told in zip(self._starts, self._told.tolist(), strict=True):
            if told[Column.WRONG]:
                raise ValueError(
                    "mask must hold only 0 and 1, and jagged tensors must have the same rows"
                )
            stats.add(start, general.stats_of(told, self._layout))
        return stats.partial(self._total, self._layout.width, self._label(stats))

    def _label(self, stats: Stats) -> Label | None:
        if stats.worst is None:
            return None
        offsets = None if self._offsets is None else self._offsets.tolist()
        where = position(stats.worst.place, self._columns, offsets)
        return Label(
            where,
            stats.worst.token if self._labelled else None,
            None if self._samples is None else str(self._samples[where[0]]),
        )


def launch(operands: Operands, module: ModuleType | None = None) -> Pending:
    """Compute the statistics on the caller's stream and send them to the host, without waiting.

    Args:
        operands: on an accelerator, at least one element.
        module: what torch knows the accelerator by, such as torch.cuda.

    Raises:
        RuntimeError: a graph is being captured, which would report once whatever is replayed.
    """
    device = operands.a.device
    here = module or torch.get_device_module(device)
    with here.device(device):
        capturing = getattr(here, "is_current_stream_capturing", None)
        if capturing is not None and capturing():
            raise RuntimeError(
                "compare reports once, not at each replay of a captured graph: "
                "call it outside of the capture, on what the graph computed"
            )
        stream = here.current_stream(device)
        for tensor in operands.tensors:
            # Its memory must not be given to another stream before this one is done with it.
            tensor.record_stream(stream)
        told, starts = rows(operands)
        found = _to_host(told)
        offsets = _to_host(operands.offsets[0]) if operands.offsets else None
        return Pending(operands, found, starts, offsets, stream.record_event())


def rows(operands: Operands) -> tuple[Tensor, list[int]]:
    """Return a row of statistics for each block, on the device, and where each block starts."""
    layout, found, starts, start = operands.layout, [], [], 0
    for a, b, *rest in blocks(operands.tensors, _BLOCK):
        mask = None if operands.mask is None else rest[0]
        tokens = None if operands.token_ids is None else rest[-1]
        found.append(general.row(a.to(layout.dtype), b.to(layout.dtype), mask, tokens, layout))
        starts.append(start)
        start += a.numel()
    told = torch.stack(found)
    for other in operands.offsets[1:]:
        told[:, Column.WRONG] |= torch.ne(other, operands.offsets[0]).any()
    return told, starts


def _to_host(found: Tensor) -> Tensor:
    pinned = torch.empty(found.shape, dtype=found.dtype, device="cpu", pin_memory=True)
    return pinned.copy_(found, non_blocking=True)
