"""The real Prometheus and Alertmanager, each in a process of its own on a free port."""

from __future__ import annotations

import json
import subprocess
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from support.process import Program
from support.programs import find, needs
from support.server import free_port

# Debian calls the last one by another name than its makers do.
PROGRAMS = {
    "prometheus": find("prometheus"),
    "promtool": find("promtool"),
    "amtool": find("amtool"),
    "alertmanager": find("prometheus-alertmanager", "alertmanager"),
}

needs_prometheus = needs(PROGRAMS)


def program(name: str) -> str:
    """Return the path of one of `PROGRAMS`; only tests that are marked `needs_prometheus` may."""
    path = PROGRAMS[name]
    assert path is not None, f"{name} not found: run `make programs`"
    return path


def run(name: str, *arguments: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run one of `PROGRAMS` to its end, with `text` on its standard input."""
    command = [program(name), *map(str, arguments)]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=120, check=False
    )


class Daemon(Program):
    """A program of Prometheus' makers with a configuration, a folder and a port of its own.

    Args:
        folder: its configuration, data and log lie there; it is made.
        name: one of `PROGRAMS`.
        config: its configuration file's content.
        port: where it listens, for a configuration that has to say so; None takes a free one.
    """

    def __init__(
        self, folder: Path, name: str, config: Mapping[str, Any], port: int | None
    ) -> None:
        super().__init__(folder, name)
        self.name = name
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.address}"
        self._config = folder / f"{name}.yml"
        folder.mkdir(parents=True, exist_ok=True)
        # Every JSON document is a YAML document.
        self._config.write_text(json.dumps(config, indent=2))

    @property
    @abstractmethod
    def flags(self) -> Sequence[str]:
        """What its command has beside the configuration and the address."""

    @property
    def command(self) -> Sequence[str | Path]:
        """The program with its configuration, its address and its flags."""
        where = (f"--config.file={self._config}", f"--web.listen-address={self.address}")
        return [program(self.name), *where, *self.flags]

    def answers(self) -> bool:
        """Whether it is ready."""
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def get(self, path: str, **query: Any) -> Any:
        """Return the JSON that it answers."""
        answer = httpx.get(f"{self.url}{path}", params=query, timeout=20)
        assert answer.status_code == 200, answer.text
        return answer.json()


class Prometheus(Daemon):
    """A Prometheus server with a data folder of its own."""

    def __init__(self, folder: Path, config: Mapping[str, Any], port: int | None = None) -> None:
        super().__init__(folder, "prometheus", config, port)

    @property
    def flags(self) -> Sequence[str]:
        """Where its data are."""
        return (f"--storage.tsdb.path={self.folder / 'data'}",)

    def query(self, expression: str, **parameters: Any) -> list[Any]:
        """Return the result of an instant query."""
        answer = self.get("/api/v1/query", query=expression, **parameters)
        result: list[Any] = answer["data"]["result"]
        return result

    def alerts(self) -> list[Any]:
        """Return the alerts that are pending or firing."""
        found: list[Any] = self.get("/api/v1/alerts")["data"]["alerts"]
        return found


class Alertmanager(Daemon):
    """An Alertmanager by itself, without a cluster."""

    def __init__(self, folder: Path, config: Mapping[str, Any], port: int | None = None) -> None:
        super().__init__(folder, "alertmanager", config, port)

    @property
    def flags(self) -> Sequence[str]:
        """Where its data are, and that it has no peers."""
        return (f"--storage.path={self.folder / 'data'}", "--cluster.listen-address=")

    def alerts(self) -> list[Any]:
        """Return the alerts that it holds, silenced ones too."""
        found: list[Any] = self.get("/api/v2/alerts")
        return found
