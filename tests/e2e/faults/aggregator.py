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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
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


class Service(Protocol):
    """Where reporters say what they say: one aggregator, or several that are one.

    Attributes:
        port: where it takes requests.
        refusals: the statuses by which it may say that a request is to be sent again.
        slowest_start: the longest that it took until it was ready, in seconds.
    """

    port: int
    refusals: frozenset[int]
    slowest_start: float

    def start(self) -> None:
        """Start all of it and wait until it is ready."""
        ...

    def end(self, how: signal.Signals = signal.SIGKILL) -> object:
        """End all of it."""
        ...

    def close(self) -> None:
        """End what runs, for good."""
        ...

    @property
    def readers(self) -> Sequence[Aggregator]:
        """Who answers questions: each of them must answer the same."""
        ...

    @property
    def complaints(self) -> list[str]:
        """What was logged that must not happen, whatever fails."""
        ...


class Aggregator:
    """An aggregator on one store and one port, however often it is started.

    Args:
        folder: where the log is, and the SQLite file if it has one.
        flags: further ones of `rankfold serve`.
        store: the URL of another store than that file.
        name: of the log.
        wrapper: a command that runs the aggregator's, such as one that prepares its disk.
    """

    refusals = frozenset({429, 503})

    def __init__(
        self,
        folder: Path,
        *flags: str,
        store: str | None = None,
        name: str = "server",
        wrapper: tuple[str, ...] = (),
    ) -> None:
        self.path = folder / "rankfold.db"
        self.log = folder / f"{name}.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        serve = (sys.executable, "-m", "rankfold_service.cli.main", "serve")
        kept = ("--store", f"sqlite:///{self.path}" if store is None else store)
        where = ("--listen", f"127.0.0.1:{self.port}", *kept)
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
        self.wait()
        self.slowest_start = max(self.slowest_start, time.monotonic() - started)

    def wait(self) -> None:
        """Wait until it is ready."""
        wait_until(lambda: self.ended() or self.ready(), "the aggregator is ready")
        assert not self.ended(), self.log.read_text()[-4000:]

    @property
    def readers(self) -> Sequence[Aggregator]:
        """See `Service.readers`."""
        return (self,)

    @property
    def complaints(self) -> list[str]:
        """See `Service.complaints`: what nobody foresaw."""
        return [line for line in self.log.read_text().splitlines() if '"level": "error"' in line]

    def ended(self) -> bool:
        """Whether it does not run."""
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
        return ask(self.port, method, path, body, **query)


def ask(port: int, method: str, path: str, body: bytes | None = None, **query: Any) -> Answer:
    """Send a request to a port of this machine and return the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2 * PATIENCE)
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
