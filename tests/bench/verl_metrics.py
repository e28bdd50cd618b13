"""What a trainer pays today for the same question: verl's debug metrics, the real ones if given.

`pip download --no-deps verl`, unzip it and name the folder in RANKFOLD_BENCH_VERL. verl itself
would bring Ray and more; its one module of metrics needs torch only and the name of a class.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

FOLDER = os.environ.get("RANKFOLD_BENCH_VERL")
SOURCE = "formulas" if FOLDER is None else "function"


def metrics() -> Callable[[Tensor, Tensor, Tensor], object]:
    """Return what computes verl's metrics of two tensors of log-probs under a mask."""
    if FOLDER is None:
        return _formulas
    function = _real(Path(FOLDER, "verl", "utils", "debug", "metrics.py"))

    def real(a: Tensor, b: Tensor, mask: Tensor) -> object:
        batch: Mapping[str, Tensor] = {
            "rollout_log_probs": b,
            "old_log_probs": a,
            "response_mask": mask,
            "responses": a,
        }
        return function(SimpleNamespace(batch=batch))

    return real


def _real(path: Path) -> Callable[[Any], object]:
    spec = importlib.util.spec_from_file_location("verl_debug_metrics", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    protocol = ModuleType("verl.protocol")
    protocol.DataProto = object  # type: ignore[attr-defined]
    with mock.patch.dict(sys.modules, {"verl": ModuleType("verl"), "verl.protocol": protocol}):
        spec.loader.exec_module(module)
    function: Callable[[Any], object] = module.calculate_debug_metrics
    return function


def _formulas(a: Tensor, b: Tensor, mask: Tensor) -> None:
    """Probabilities, their difference and their correlation, read as five numbers."""
    actor, rollout = torch.exp(a), torch.exp(b)
    distance = torch.masked_select((actor - rollout).abs(), mask)
    pair = torch.stack([torch.masked_select(actor, mask), torch.masked_select(rollout, mask)])
    pearson = torch.corrcoef(pair)[0, 1]
    for value in (mask.any(), distance.max(), distance.mean(), distance.std(), pearson):
        value.item()
