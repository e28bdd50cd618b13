"""The client against small servers on real sockets that behave as networks and servers do."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest
import torch

import rankfold_client as rf
from rankfold.wire import REPORT_PATH

CLEAN = rf.Partial(valid=4, count=0, max=0.0, sum=0.0)
Behaviour = Callable[["Handler"], None]


class Aggregator(ThreadingHTTPServer):
    """Counts each identity once, and first behaves as the test says.

    Args:
        behaviours: what to do with each request in turn; then all are answered well.
        port: 0 takes any.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *behaviours: Behaviour, port: int = 0) -> None:
        self.behaviours = list(behaviours)
        self.bodies: list[bytes] = []
        self.partials: dict[tuple[Any, ...], Any] = {}
        self.order: list[tuple[int, int]] = []
        self.commits: dict[tuple[int, int], int] = {}
        self.finished: list[str] = []
        self.dropped = 0
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, report: dict[str, Any]) -> dict[str, int]:
        """Count a report's partials, each once, and return the receipt."""
        columns = report.get("partials", {"series": []})
        rank, duplicates = report["rank"], 0
        for row in range(len(columns["series"])):
            series, iteration, microbatch = (
                columns[name][row] for name in ("series", "iteration", "microbatch")
            )
            identity = (report["attempt"], rank, iteration, microbatch, series)
            content = tuple(columns[name][row] for name in ("valid", "count", "max", "sum"))
            duplicates += identity in self.partials
            if identity not in self.partials:
                self.order.append((iteration, microbatch))
            assert self.partials.setdefault(identity, content) == content
        commits = report.get("commits", {"iteration": [], "microbatches": []})
        for iteration, number in zip(commits["iteration"], commits["microbatches"], strict=True):
            self.commits[rank, iteration] = number
        self.dropped = max(self.dropped, report.get("dropped", 0))
        accepted = len(columns["series"]) - duplicates
        return {"accepted": accepted, "duplicates": duplicates, "conflicts": 0}


class Handler(BaseHTTPRequestHandler):
    """One request to an `Aggregator`."""

    protocol_version = "HTTP/1.1"
    server: Aggregator

    def do_POST(self) -> None:
        """Behave as told, or take the report."""
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.bodies.append(self.body)
            behave = self.server.behaviours.pop(0) if self.server.behaviours else Handler.accept
        with contextlib.suppress(ConnectionError):
            behave(self)

    def commit(self) -> dict[str, Any]:
        """Take the request for good and return the answer."""
        if self.path != REPORT_PATH:
            self.server.finished.append(self.path)
            project, run = (unquote(name) for name in self.path.split("/")[4:7:2])
            attempt = json.loads(self.body)["attempt"]
            return {"project": project, "run": run, "attempt": attempt, "finished": True}
        zipped = self.headers["Content-Encoding"] == "gzip"
        with self.server.lock:
            return self.server.take(json.loads(gzip.decompress(self.body) if zipped else self.body))

    def accept(self) -> None:
        """Take the request and answer it."""
        self.answer(200, self.commit())

    def answer(self, status: int, document: object, **headers: str) -> None:
        """Send an answer."""
        raw = json.dumps(document).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def drop(self) -> None:
        """Close the connection without an answer."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


def refuse(status: int, **headers: str) -> Behaviour:
    """Answer with an error and take nothing."""
    problem = {"detail": f"told to answer {status}", "status": status}
    return lambda handler: handler.answer(status, problem, **headers)


def commit_then_drop(handler: Handler) -> None:
    """Take the report and lose the answer."""
    handler.commit()
    handler.drop()


def short_receipt(handler: Handler) -> None:
    """Take nothing, and say that one was taken, whatever was sent."""
    handler.answer(200, {"accepted": 1, "duplicates": 0, "conflicts": 0})


@contextlib.contextmanager
def serving(server: Aggregator) -> Iterator[Aggregator]:
    """Serve while the body runs."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def train(reporter: rf.Reporter, iterations: int = 3, microbatches: int = 4) -> None:
    """Report some iterations."""
    for _ in range(iterations):
        for _ in range(microbatches):
            reporter.compare("s", torch.zeros(2, 3), torch.ones(2, 3))
        reporter.end_iteration()


def places(iterations: int = 3, microbatches: int = 4) -> list[tuple[int, int]]:
    """Return the (iteration, microbatch) that `train` reports, in order."""
    return [(i, m) for i in range(iterations) for m in range(microbatches)]


@pytest.mark.parametrize(
    "behaviours",
    [
        [],
        [refuse(500)] * 3,
        [refuse(503, Retry_After="0"), refuse(429), refuse(502)],
        [Handler.drop, Handler.drop],
        [commit_then_drop, commit_then_drop, commit_then_drop],
        [lambda h: (h.wfile.write(b"nonsense\r\n\r\n"), h.drop())],
        [lambda h: h.answer(200, "<html>")],
        [short_receipt] * 3,
        [
            lambda h: (
                h.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"),
                h.drop(),
            )
        ],
    ],
    ids=["well", "500", "busy", "drop", "lost", "nonsense", "no-receipt", "short", "cut"],
)
def test_client_delivers_everything_once_and_in_order(behaviours: list[Behaviour]) -> None:
    """Whatever goes wrong first, every partial and commit arrives, counted once."""
    with serving(Aggregator(*behaviours)) as server:
        reporter = rf.Reporter("r", url=server.url)
        train(reporter)
        assert reporter.close(timeout=30.0) == 0
    assert server.order == places()
    assert server.commits == {(0, 0): 4, (0, 1): 4, (0, 2): 4}
    assert server.finished == ["/api/v1/projects/default/runs/r/finish"]
    assert server.dropped == 0


def test_client_sends_the_same_bytes_again() -> None:
    """A report whose answer was lost is repeated without a change, so that it counts once."""
    with serving(Aggregator(commit_then_drop, refuse(500))) as server:
        rf.Reporter("r", url=server.url).close()
    assert len(set(server.bodies[:3])) == 1


def test_client_does_not_wait_for_a_slow_server() -> None:
    """Training goes on while a server does not answer, and what it took late counts once."""
    release, reached = threading.Event(), threading.Event()

    def hang(handler: Handler) -> None:
        reached.set()
        release.wait(30.0)
        handler.accept()

    with serving(Aggregator(hang)) as server:
        reporter = rf.Reporter("r", url=server.url, timeout=0.2)
        assert reached.wait(30.0)
        started = time.perf_counter()
        train(reporter)
        assert time.perf_counter() - started < 1.0
        release.set()
        assert reporter.close(timeout=30.0) == 0
    assert server.order == places()


def test_client_waits_for_a_server_that_is_not_there_yet() -> None:
    """A trainer may start before the aggregator does."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    reporter = rf.Reporter("r", url=f"http://127.0.0.1:{port}")
    train(reporter)
    assert reporter.flush(timeout=0.1) == 16
    with serving(Aggregator(port=port)) as server:
        assert reporter.close(timeout=30.0) == 0
    assert server.order == places()


def test_client_honours_retry_after() -> None:
    """The next try does not come before the time that the server named, hurried or not."""
    with serving(Aggregator(refuse(429, Retry_After="60"))) as server:
        reporter = rf.Reporter("r", url=server.url)
        train(reporter)
        assert reporter.close(timeout=0.5) == 16
    assert len(server.bodies) == 1


def test_client_gives_up_what_is_refused_and_says_so() -> None:
    """After a refusal the rest arrives, with the number of what was lost."""
    bad = "one that is refused"

    def pick(handler: Handler) -> None:
        if bad.encode() in handler.body:
            refuse(422)(handler)
        else:
            handler.accept()

    with serving(Aggregator(*[pick] * 50)) as server:
        reporter = rf.Reporter("r", url=server.url)
        reporter.partial("s", CLEAN)
        reporter.partial(bad, CLEAN)
        reporter.partial("s", CLEAN)
        reporter.end_iteration()
        assert reporter.close() == 1
    assert server.order == [(0, 0), (0, 1)]
    assert (server.dropped, server.commits, server.finished) == (1, {(0, 0): 2}, [])


def test_client_asks_again_where_nobody_says_that_the_run_is_finished() -> None:
    """A page that a proxy puts in the place of the answer is none."""
    strange: list[object] = ["<html>", {}, {"finished": True}]

    def pick(handler: Handler) -> None:
        if handler.path != REPORT_PATH and strange:
            handler.answer(200, strange.pop())
        else:
            handler.accept()

    with serving(Aggregator(*[pick] * 50)) as server:
        reporter = rf.Reporter("r", url=server.url)
        train(reporter)
        assert reporter.close(timeout=30.0) == 0
    assert (strange, len(server.finished)) == ([], 1)


def test_client_percent_encodes_the_run_it_finishes() -> None:
    """Any name that the contract allows reaches the server as one segment."""
    with serving(Aggregator()) as server:
        rf.Reporter("a b%2F?é", project="p#1", url=server.url).close()
    (path,) = server.finished
    segments = path.split("/")
    assert [unquote(segments[i]) for i in (4, 6)] == ["p#1", "a b%2F?é"]


def test_client_reads_address_and_token_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """RANKFOLD_URL and RANKFOLD_TOKEN stand in for arguments that were not given."""
    tokens: list[str | None] = []

    def note(handler: Handler) -> None:
        tokens.append(handler.headers["Authorization"])
        handler.accept()

    with serving(Aggregator(note, note)) as server:
        monkeypatch.setenv("RANKFOLD_URL", server.url)
        monkeypatch.setenv("RANKFOLD_TOKEN", "from-outside")
        rf.Reporter("r").close()
    assert tokens == ["Bearer from-outside"] * 2


def run_script(script: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run a trainer in a process of its own."""
    head = "import os, sys, torch, rankfold_client as rf\n"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", head + script],
        env=os.environ | {"RANKFOLD_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_client_delivers_at_exit_without_finishing() -> None:
    """A trainer that forgets to close loses nothing, and its run is not marked finished."""
    script = "r = rf.Reporter('r')\nr.compare('s', torch.zeros(3), torch.ones(3))\n"
    with serving(Aggregator()) as server:
        done = run_script(script, server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert server.order == [(0, 0)]
    assert server.finished == []


def test_client_never_holds_up_the_end_of_a_process() -> None:
    """With nobody to deliver to, a trainer still ends, and says what it could not deliver."""
    script = "r = rf.Reporter('r')\nr.compare('s', torch.zeros(3), torch.ones(3))\n"
    done = run_script(script, "http://127.0.0.1:9")
    assert done.returncode == 0
    assert "rank 0 of run r: closed with 2 items undelivered" in done.stderr


def test_client_in_a_forked_child_does_nothing() -> None:
    """A child neither hangs nor sends what its parent sends, and is told so once."""
    script = """
r = rf.Reporter("r")
r.partial("s", rf.Partial(valid=1, count=0, max=0.0, sum=0.0))
child = os.fork()
if child == 0:
    r.compare("s", torch.zeros(3), torch.ones(3))
    r.end_iteration()
    print(r.flush(), r.close())
    sys.exit(0)
_, status = os.waitpid(child, 0)
r.end_iteration()
sys.exit(r.close() or status)
"""
    with serving(Aggregator()) as server:
        done = run_script(script, server.url)
    assert (done.returncode, done.stdout) == (0, "0 0\n")
    assert done.stderr.count("was forked from the one that reports") == 1
    assert done.stderr.endswith("make a Reporter in the child\n")
    assert server.order == [(0, 0)]
    assert server.commits == {(0, 0): 1}
    assert len(server.finished) == 1
