"""What is made of Prometheus' own files for those who run it otherwise."""

from __future__ import annotations

from typing import Any

import yaml

MADE = "# Built from docker/prometheus/{} by `make dashboards`.\n"


def prometheus_rule(rules: str) -> str:
    """Return the rules as an object of Prometheus' operator."""
    made = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "rankfold"},
        "spec": yaml.safe_load(rules),
    }
    return MADE.format("rankfold.rules.yml") + dumped(made)


def with_token(config: str) -> str:
    """Return the configuration with a token for the aggregator, for `compose.tokens.yaml`."""
    made = yaml.safe_load(config)
    for scrape in made["scrape_configs"]:
        if scrape["job_name"] == "rankfold":
            secret = {"credentials_file": "/run/secrets/rankfold-scrape-token"}
            scrape["authorization"] = secret
    return MADE.format("prometheus.yml") + dumped(made)


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as lines."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dumped(value: dict[str, Any]) -> str:
    """Return YAML in the order that is given."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text
