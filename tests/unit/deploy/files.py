"""What the tests of deployments share: the repository's files, settings and versions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from rankfold_service.settings import PREFIX, Settings

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "docker"
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
VARIABLES = {f"{PREFIX}{setting.name.upper()}" for setting in fields(Settings)}
# PostgreSQL's exact versions have two numbers.
PINNED = re.compile(r"(?:postgres:\d+\.\d+|[\w./-]+:v?\d+\.\d+\.\d+)[\w.-]*")


def unknown(environment: Mapping[str, str]) -> set[str]:
    """Return the variables that look like a setting of the aggregator and are none."""
    return {name for name in environment if name.startswith(PREFIX)} - VARIABLES
