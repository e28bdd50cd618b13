"""The real aggregator in a process of its own, to be killed, stopped, paused and started again."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

PATIENCE = 30.0


class Answer(NamedTuple):
    """What was answered to a request."""

    status: int
    retry_after: str | None
    text: str

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.text)


class Aggregator:
    """An aggregator on one SQLite file and one port, however often it is started.

    Args:
        folder: where the file and the log are.
        flags: further ones of `rankfold serve`.
        wrapper: a command that runs the aggregator's, such as one that prepares its disk.
    """

    def __init__(self, folder: Path, *flags: str, wrapper: tuple[str, ...] = ()) -> None:
        self.path = folder / "rankfold.db"
        self.log = folder / "server.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        serve = (sys.executable, "-m", "rankfold_service.cli.main", "serve")
        where = ("--listen", f"127.0.0.1:{self.port}", "--store", f"sqlite:///{self.path}")
        self.command = (*wrapper, *serve, *where, *flags)
        self.process: subprocess.Popen[bytes] | None = None
        self.slowest_start = 0.0

    def launch(self) -> None:
        """Start the process."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RANKFOLD_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        started = time.monotonic()
        self.launch()
        wait_until(lambda: self._ended() or self.ready(), "the aggregator is ready")
        assert not self._ended(), self.log.read_text()[-4000:]
        self.slowest_start = max(self.slowest_start, time.monotonic() - started)

    def _ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def ready(self) -> bool:
        """Whether it says that it is ready."""
        try:
            return self.ask("GET", "/-/ready").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def strike(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal, without waiting for what it does."""
        assert self.process is not None
        self.process.send_signal(how)

    def end(self, how: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal that ends it and return the exit code."""
        self.strike(how)
        assert self.process is not None
        code = self.process.wait(PATIENCE)
        self.process = None
        return code

    def close(self) -> None:
        """End it, if it runs."""
        if self.process is not None:
            self.end()

    def start_second(self) -> int:
        """Start another aggregator on the same file and return its exit code."""
        return subprocess.run(
            [part.replace(f":{self.port}", ":0") for part in self.command],
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        ).returncode

    def ask(self, method: str, path: str, body: bytes | None = None, **query: Any) -> Answer:
        """Send a request and return the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            target = f"{path}?{urlencode(query, doseq=True)}" if query else path
            connection.request(method, target, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
            return Answer(response.status, response.getheader("Retry-After"), text)
        finally:
            connection.close()


def wait_until(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Wait until a condition holds; fail if that takes too long."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"waited {patience} s in vain until {what}"
        time.sleep(0.01)
