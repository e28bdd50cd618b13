"""`rankfold watch` follows real runs: restarts of theirs and of the aggregator, until their end."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import pytest

from rankfold_service.cli.main import main
from support.reports import SERIES, partial
from support.server import Server

PATIENCE = 30.0


class Watcher:
    """The command in a process of its own, and the lines that it prints as they come."""

    def __init__(self, server: Server, run: str, *more: str) -> None:
        command = [sys.executable, "-m", "rankfold_service.cli.main", "watch", run]
        self.process = subprocess.Popen(
            [*command, "--url", server.url, "--interval", "0.1", *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self.before: list[str] = []
        self._threads = [
            threading.Thread(target=self._read, args=(stream, mark), daemon=True)
            for stream, mark in ((self.process.stdout, ""), (self.process.stderr, "! "))
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: Any, mark: str) -> None:
        for line in stream:
            self._lines.put(mark + line.rstrip("\n"))

    def expect(self, beginning: str) -> str:
        """Return the next line that begins so; `before` has those before it."""
        self.before = []
        while True:
            try:
                line = self._lines.get(timeout=PATIENCE)
            except queue.Empty:
                raise AssertionError(f"no {beginning!r} after {self.before}") from None
            if line.startswith(beginning):
                return line
            self.before.append(line)

    def end(self) -> tuple[int, list[str]]:
        """Return the exit code once it has ended, and the lines that are left."""
        code = self.process.wait(PATIENCE)
        for thread, stream in zip(
            self._threads, (self.process.stdout, self.process.stderr), strict=True
        ):
            thread.join()
            assert stream is not None
            stream.close()
        return code, list(self._lines.queue)

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.end()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """An aggregator; on which store its runs are makes no difference to who follows them."""
    with Server("memory://") as running:
        yield running


def report(server: Server, run: str, *iterations: int, **more: Any) -> None:
    """Let the one rank of a run report whole iterations, with `count` mismatches in each."""
    count = more.pop("count", 0)
    figures = {"count": count, "max": 0.5 * bool(count), "sum": 0.5 * count}
    said = server.report(
        **{"run": run, "rank": 0, "world_size": 1, **more},
        partials=[partial(iteration=i, **figures) for i in iterations],
        scalars=[
            {"key": "loss", "iteration": i, "microbatch": 0, "value": 0.25, "rule": "mean"}
            for i in iterations
        ],
        commits=[{"iteration": i, "microbatches": 1} for i in iterations],
    )
    assert said.status_code == 200, said.text


def finish(server: Server, run: str, attempt: int = 0) -> None:
    """Mark an attempt finished."""
    path = f"/api/v1/projects/default/runs/{run}/finish"
    assert server.client.post(path, json={"attempt": attempt}).status_code == 200


def test_a_run_is_followed_from_before_it_begins_to_its_end(durable: Server) -> None:
    """Through a restart, a rank that is late, and an aggregator that is killed meanwhile."""
    with Watcher(durable, "run", "--key", "loss") as watcher:
        watcher.expect("! rankfold watch: waiting: no run 'run'")
        assert '"level": "warning"' not in durable.log.read_text()
        report(durable, "run", 0, world_size=2)
        assert watcher.expect("default/run: ") == "default/run: running, attempt 0, 1 of 2 ranks"
        watcher.expect("gate no_data: ")
        report(durable, "run", 0, 1, 2, rank=1, world_size=2)
        line = watcher.expect("iteration 0")
        assert line == f"iteration 0  {SERIES}: 0 of 16  loss: 0.25"
        watcher.expect("gate pass: ")
        report(durable, "run", 3, rank=1, world_size=2)
        assert watcher.expect("iteration 1").startswith("iteration 1  incomplete  ")
        durable.kill()
        watcher.expect("! rankfold watch: waiting: ")
        durable.start()
        watcher.expect(f"! rankfold watch: {durable.url} answers again")
        assert not [line for line in watcher.before if line.startswith("!")]
        for rank in (0, 1):
            report(durable, "run", 1, attempt=1, rank=rank, world_size=2)
        watcher.expect("attempt 1 reports from iteration 1")
        watcher.expect(f"iteration 1  {SERIES}: 0 of 16")
        for rank in (0, 1):
            report(durable, "run", 2, attempt=1, rank=rank, world_size=2)
        watcher.expect(f"iteration 2  {SERIES}: 0 of 16")
        finish(durable, "run", 1)
        code, rest = watcher.end()
        assert code == 0
        assert "pass  default/run (finished)" in rest


def test_a_mismatch_fails_at_the_end_as_the_gate_does(server: Server, run: str) -> None:
    """The verdict is on the whole run, under the limits that are given."""
    report(server, run, *range(20), count=1)
    with Watcher(server, run) as watcher:
        watcher.expect("iteration 10  ")
        assert [line for line in watcher.before if line.startswith("iteration")] == []
        watcher.expect("gate fail: ")
        finish(server, run)
        code, rest = watcher.end()
    assert code == 1
    assert f"fail  default/{run} (finished)" in rest
    for more, code in (([], 1), (["--max-mismatch-count", "20"], 0)):
        assert main(["watch", run, "--url", server.url, *more]) == code


def test_json_has_an_object_a_line(
    server: Server, run: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the API answers, and what it is about; of chosen series their keys."""
    report(server, run, *range(450))
    finish(server, run)
    asked = ["watch", run, "--url", server.url, "--json", "--from", "0"]
    assert main(asked) == 0
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds == ["run", *["iteration"] * 450, "verdict"]
    assert [event["iteration"] for event in events[1:-1]] == list(range(450))
    (known,) = server.get(run, "iterations", **{"from": 7, "to": 7})["items"]
    assert events[8] == {"event": "iteration"} | known
    assert events[-1] == {"event": "verdict"} | server.get(run, "gate")
    assert main([*asked, "--from", "449", "--key", "loss", "--series", SERIES]) == 0
    _, last, _ = map(json.loads, capfd.readouterr().out.splitlines())
    assert last["keys"]["loss"] == 0.25
    assert {f"{SERIES}_mismatch_count", "loss"} < last["keys"].keys()


def test_reports_on_their_way_have_a_moment(server: Server, run: str) -> None:
    """A rank that is marked finished before the last report has come."""
    report(server, run, 0, world_size=2)
    finish(server, run)
    with Watcher(server, run) as watcher:
        watcher.expect("! rankfold watch: waiting: the run is finished, the gate incomplete")
        report(server, run, 0, rank=1, world_size=2)
        code, rest = watcher.end()
    assert code == 0
    assert f"iteration 0  {SERIES}: 0 of 16" in rest


def test_what_is_missing_of_a_run_that_fails_is_waited_for(server: Server, run: str) -> None:
    """The last lines have all ranks, not only the one that finished first."""
    report(server, run, 0, count=1, world_size=2)
    finish(server, run)
    with Watcher(server, run) as watcher:
        watcher.expect("! rankfold watch: waiting: the run is finished, the gate fail")
        report(server, run, 0, count=2, rank=1, world_size=2)
        code, rest = watcher.end()
    assert code == 1
    assert f"iteration 0  {SERIES}: 3 of 16, max 0.5, mean 0.09375" in rest


def test_a_run_that_is_deleted_and_begun_anew_is_told_of(server: Server, run: str) -> None:
    """It is followed like the one before it."""
    report(server, run, 0, 1, 2)
    with Watcher(server, run) as watcher:
        watcher.expect("gate pass: ")
        path = f"/api/v1/projects/default/runs/{run}"
        assert server.client.delete(path).status_code == 200
        watcher.expect("! rankfold watch: waiting: no run")
        report(server, run, 0, count=1)
        watcher.expect("the run was begun anew, from iteration 0")
        watcher.expect(f"iteration 0  {SERIES}: 1 of 8, max 0.5, mean 0.0625")
        watcher.expect("gate fail: ")


def test_ctrl_c_ends_it_quietly(server: Server, run: str) -> None:
    """Exit 130, as with the other commands."""
    report(server, run, 0)
    with Watcher(server, run) as watcher:
        watcher.expect("gate pass: ")
        watcher.process.send_signal(signal.SIGINT)
        assert watcher.end() == (130, [])


def test_it_ends_when_nobody_reads_any_more(server: Server, run: str) -> None:
    """Although nothing happens in the run: `head` has what it wanted."""
    report(server, run, 0)
    command = f"{sys.executable} -m rankfold_service.cli.main watch {run} --url {server.url}"
    done = subprocess.run(
        ["bash", "-c", f"{command} --interval 0.1 | head -n 1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    first, code = done.stdout.splitlines()
    assert first == f"default/{run}: running, attempt 0, 1 of 1 ranks"
    assert (code, done.stderr) == ("141", "")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--url", "http://127.0.0.1:1"], 4, "no aggregator answers"),
        (["--interval", "0"], 2, "argument --interval: must be at least 0.1, not '0'"),
        (["--from", "-1"], 2, "argument --from"),
    ],
)
def test_what_cannot_be_followed_is_said_at_once(
    arguments: list[str], code: int, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is waited for where an address or an option is wrong."""
    assert main(["watch", "run", *arguments]) == code
    assert told in capfd.readouterr().err
