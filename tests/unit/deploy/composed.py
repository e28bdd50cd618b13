"""Files of Docker Compose, as Docker Compose itself reads them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from unit.deploy.files import DOCKER

_PACKAGE = importlib.util.find_spec("compose")
needs_compose = pytest.mark.skipif(
    _PACKAGE is None, reason="Docker Compose is on the package index for Linux on x86-64 only"
)
GIVEN = {"GRAFANA_ADMIN_PASSWORD": "secret"}


def compose(*files: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Have Docker Compose read files, check them, and write down what it makes of them."""
    assert _PACKAGE is not None
    assert _PACKAGE.origin is not None
    # Not through the package's command, which ends with 0 whatever happens.
    program = Path(_PACKAGE.origin).with_name("docker-compose")
    named = [argument for name in files for argument in ("-f", name)]
    return subprocess.run(
        [program, *named, "--profile", "*", "config", "--format", "json"],
        cwd=DOCKER,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def read(*files: str, **environment: str) -> dict[str, Any]:
    """Return what Docker Compose makes of files, with no complaint."""
    done = compose(*files, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
