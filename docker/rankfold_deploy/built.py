"""What is built, and where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from rankfold_deploy.dashboards import DASHBOARDS

DOCKER = Path(__file__).resolve().parents[1]


def built() -> Mapping[Path, str]:
    """Return the content of every file that is built, by its path."""
    encoder = JSONEncoder(sort_keys=True, indent=2)
    return {
        DOCKER / f"grafana/dashboards/{uid}.json": encoder.encode(dashboard().build()) + "\n"
        for uid, dashboard in DASHBOARDS.items()
    }
