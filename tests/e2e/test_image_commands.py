"""What images run, started by hand: health checks, and the commands of the compose file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.dockerfile import stages
from support.prometheus import Alertmanager, Daemon, Prometheus, needs_prometheus, program
from support.server import Server

DOCKER = Path(__file__).parents[2] / "docker"
SERVICES: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]


def check(listen: str) -> subprocess.CompletedProcess[str]:
    """Run the image's health check, by any Python: it needs nothing that is installed."""
    _, _, script = stages(DOCKER / "Dockerfile")[-1].command("HEALTHCHECK")
    here = DOCKER / Path(script).name
    return subprocess.run(
        [sys.executable, "-I", "-W", "error", here],
        env={**os.environ, "RANKFOLD_LISTEN": listen},
        capture_output=True,
        text=True,
        check=False,
    )


def test_health_check_follows_the_aggregator(tmp_path: Path) -> None:
    """0 while it lives, on any address that it may listen on; 1 and why after."""
    with Server(f"sqlite:///{tmp_path}/rankfold.db") as server:
        for host in ("127.0.0.1", "0.0.0.0", ""):  # noqa: S104 - not bound to
            done = check(f"{host}:{server.port}")
            assert (done.returncode, done.stderr) == (0, "")
        assert server.stop() == 0
    done = check(f"127.0.0.1:{server.port}")
    assert done.returncode == 1
    assert "refused" in done.stderr


@pytest.fixture(params=["prometheus", "alertmanager"])
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemon]:
    """Yield the real program behind a service, started with the configuration that is shipped."""
    made = {"prometheus": Prometheus, "alertmanager": Alertmanager}[request.param]
    config = yaml.safe_load((DOCKER / request.param / f"{request.param}.yml").read_text())
    config.pop("rule_files", None)  # found beside the configuration, and tested by themselves
    with made(tmp_path, config) as running:
        yield running


@needs_prometheus
def test_health_checks_of_the_other_services_work(daemon: Daemon) -> None:
    """Each asks its program with a tool that is in its image: 0 while it answers, else not."""
    _, tool, *arguments = SERVICES[daemon.name]["healthcheck"]["test"]
    (port,) = (str(p).rpartition(":")[2] for p in SERVICES[daemon.name]["ports"])
    command = [program(tool), *(one.replace(f":{port}", f":{daemon.port}") for one in arguments)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    daemon.end()
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


@needs_prometheus
@pytest.mark.parametrize("name", ["prometheus", "alertmanager"])
def test_commands_of_the_other_services_are_understood(name: str) -> None:
    """Every flag is one of the program's."""
    told = subprocess.run([program(name), "--help"], capture_output=True, text=True, check=False)
    for flag in SERVICES[name]["command"]:
        assert flag.partition("=")[0] in told.stdout + told.stderr
