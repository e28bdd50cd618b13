"""The real HAProxy, with the configuration that is shipped, in front of aggregators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import httpx

from support.documents import ROOT
from support.process import Process, give
from support.programs import find, needs
from support.server import free_port

PROGRAM = find("haproxy")
needs_haproxy = needs({"haproxy": PROGRAM})
SHIPPED = ROOT / "docker/haproxy/haproxy.cfg"


class HaProxy(Process):
    """A load balancer.

    Args:
        ports: where the aggregators listen on this machine.
    """

    def __init__(self, *ports: int) -> None:
        super().__init__("haproxy")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._config = give(self.folder / "haproxy.cfg", self._configured(ports))

    def _configured(self, ports: Sequence[int]) -> str:
        """Return what is shipped, with a port of this machine and with servers that are here."""
        servers = [f"server a{port} 127.0.0.1:{port}" for port in ports]
        lines = []
        for line in SHIPPED.read_text().splitlines():
            match line.split():
                case ["bind", _]:
                    lines.append(f"  bind 127.0.0.1:{self.port}")
                case ["server-template", *_]:
                    lines += servers
                case _:
                    lines.append(line)
        return "\n".join([*lines, ""])

    @property
    def command(self) -> Sequence[str | Path]:
        """HAProxy in the foreground."""
        assert PROGRAM is not None
        return [PROGRAM, "-db", "-f", self._config]

    def answers(self) -> bool:
        """Whether an aggregator answers through it."""
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=5).status_code == 200
        except httpx.TransportError:
            return False
