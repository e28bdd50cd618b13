"""A real aggregator in a process of its own, on a free port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

STARTING = 20.0


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """An aggregator that can be stopped, killed and started again on the same store and port."""

    def __init__(self, store: str, *flags: str) -> None:
        self.store = store
        self.flags = flags
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=20)
        self.log = Path(tempfile.mkstemp(suffix=".log")[1])
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Server:
        """Start it and wait until it is ready."""
        command = [
            *(sys.executable, "-m", "rankfold_service.cli.main", "serve"),
            *("--listen", f"127.0.0.1:{self.port}", "--store", self.store),
            *self.flags,
        ]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RANKFOLD_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + STARTING
        while not self._ready():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)
        return self

    def _ready(self) -> bool:
        try:
            return self.client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> int:
        """Ask it to end and return its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, with no chance to tidy."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        code = self.process.wait(20)
        self.process = None
        # Connections that the end has cut would cost the next request a failure.
        self.client.close()
        self.client = httpx.Client(base_url=self.url, timeout=20)
        return code

    def report(self, **body: Any) -> httpx.Response:
        """Send a report."""
        return self.client.post("/api/v1/partials", json=body)

    def get(self, run: str, what: str, project: str = "default", **query: Any) -> dict[str, Any]:
        """Read something about a run."""
        path = f"/api/v1/projects/{quote(project, safe='')}/runs/{quote(run, safe='')}"
        answer = self.client.get(f"{path}/{what}" if what else path, params=query)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process is not None:
            self.kill()
        self.client.close()
        self.log.unlink()
