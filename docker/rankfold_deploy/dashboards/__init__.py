"""Grafana's dashboards, each a function that returns one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from grafana_foundation_sdk.builders.dashboard import Dashboard

from rankfold_deploy.dashboards.aggregator import aggregator
from rankfold_deploy.dashboards.run import run
from rankfold_deploy.dashboards.runs import runs

DASHBOARDS: Mapping[str, Callable[[], Dashboard]] = {
    "rankfold-runs": runs,
    "rankfold-run": run,
    "rankfold-aggregator": aggregator,
}
"""Every dashboard by its uid, which is its file's name too."""
