"""What the commands' tests share: an aggregator, its answers, a plain environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from unit.service.cli.canned import CannedAggregator


@pytest.fixture
def aggregator(monkeypatch: pytest.MonkeyPatch) -> Iterator[CannedAggregator]:
    """An aggregator that the commands find through RANKFOLD_URL."""
    canned = CannedAggregator()
    monkeypatch.setenv("RANKFOLD_URL", canned.url)
    yield canned
    canned.close()


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "PROJECT", "TOKEN", "STORE", "RULES"):
        monkeypatch.delenv(f"RANKFOLD_{name}", raising=False)
    for name in ("COLUMNS", "NO_COLOR", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def partial_run() -> dict[str, Any]:
    """The gate's answer on a run with a mismatch, a gap and a conflict."""
    return {
        "project": "default",
        "run": "qwen3",
        "gate": "fail",
        "state": "running",
        "live": False,
        "reasons": [
            "training/rollout_logprobs: 1 of 32768 positions mismatch",
            "1 iterations are incomplete: 3 (ranks 1)",
        ],
        "series": {
            "training/rollout_logprobs": {
                "mismatch_count": 1,
                "nonfinite_count": 0,
                "valid_count": 32768,
                "diff_max": 7.450580596923828e-09,
                "diff_mean": 2.2737367544323206e-13,
            }
        },
        "iterations": {
            "first": 0,
            "last": 3,
            "complete": 3,
            "incomplete": [3],
            "incomplete_count": 1,
            "absent": [],
            "absent_count": 0,
            "in_progress": [],
        },
        "ranks": {"expected": 2, "expected_from": "world_size", "reporting": 2, "missing": []},
        "missing": [
            {"iteration": 3, "attempt": 0, "rank": 0, "series": None, "microbatches": []},
            {
                "iteration": 3,
                "attempt": 0,
                "rank": 1,
                "series": "training/rollout_logprobs",
                "microbatches": [6, 7],
            },
        ],
        "conflicts": 1,
        "conflict_details": [
            {
                "attempt": 0,
                "iteration": 2,
                "rank": 1,
                "kind": "partial",
                "name": "training/rollout_logprobs",
                "reason": "microbatch 0 was reported with other content",
            }
        ],
        "dropped": 0,
        "worst": [
            {
                "series": "training/rollout_logprobs",
                "attempt": 0,
                "rank": 1,
                "iteration": 2,
                "microbatch": 5,
                "position": [3, 1017],
                "a": -0.6931471824645996,
                "b": -0.6931471228599548,
                "ulp": 1,
                "token_id": 2048,
            }
        ],
    }


@pytest.fixture
def clean_run(partial_run: dict[str, Any]) -> dict[str, Any]:
    """The gate's answer on a finished run without a mismatch."""
    series = {"mismatch_count": 0, "nonfinite_count": 0, "valid_count": 32768}
    return partial_run | {
        "gate": "pass",
        "state": "finished",
        "reasons": ["32768 positions compared in 4 complete iterations"],
        "series": {"training/rollout_logprobs": series | {"diff_max": 0.0, "diff_mean": 0.0}},
        "iterations": partial_run["iterations"]
        | {"complete": 4, "incomplete": [], "incomplete_count": 0},
        "missing": [],
        "conflicts": 0,
        "conflict_details": [],
        "worst": [],
    }
