"""Folders of Kubernetes manifests, as kubectl renders them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from unit.deploy.files import DOCKER

KUBECTL = Path(sys.executable).with_name("kubectl")
# The oldest that is still looked after somewhere, and the newest that the schemas are for.
RELEASES = ("1.30.0", kubernetes_validate.latest_version())
OPERATOR = {"PrometheusRule", "ServiceMonitor"}

Objects = dict[str, dict[str, Any]]


def rendered(folder: str) -> list[dict[str, Any]]:
    """Return the objects of a folder, as `kubectl apply -k` would send them."""
    command = [KUBECTL, "kustomize", DOCKER / folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.safe_load_all(done.stdout))


def by_kind(folder: str) -> Objects:
    """Return every object of a folder by its kind, of which there is one each."""
    found = rendered(folder)
    kinds = {one["kind"]: one for one in found}
    assert len(kinds) == len(found)
    return kinds
