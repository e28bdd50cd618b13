"""What is built, and where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from rankfold_deploy.dashboards import DASHBOARDS
from rankfold_deploy.rules import prometheus_rule, with_token

DOCKER = Path(__file__).resolve().parents[1]
PROMETHEUS = DOCKER / "prometheus"


def built() -> Mapping[Path, str]:
    """Return the content of every file that is built, by its path."""
    encoder = JSONEncoder(sort_keys=True, indent=2)
    files = {
        DOCKER / f"grafana/dashboards/{uid}.json": encoder.encode(dashboard().build()) + "\n"
        for uid, dashboard in DASHBOARDS.items()
    }
    rules = (PROMETHEUS / "rankfold.rules.yml").read_text(encoding="utf-8")
    config = (PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8")
    files[DOCKER / "kubernetes/monitoring/prometheusrule.yaml"] = prometheus_rule(rules)
    files[DOCKER / "prometheus.tokens.yml"] = with_token(config)
    return files
