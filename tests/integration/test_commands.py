"""What the commands say to a person who got something wrong, asked of a real aggregator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rankfold_service.cli.main import main
from support.reports import partial
from support.server import Server
from support.unruly import Unruly, answering, http


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """An aggregator with one run, complete so far, that goes on."""
    with Server("memory://") as server:
        commits = [{"iteration": 0, "microbatches": 1}]
        clean = partial()
        said = server.report(run="run", rank=0, world_size=1, partials=[clean], commits=commits)
        assert said.status_code == 200, said.text
        yield server


READERS = ("gate", "watch", "totals", "ranks", "worst", "export", "runs")
OTHERS_ANSWERS = {
    "no member": http(200, {}),
    "a list": http(200, [1, 2]),
    "a number": http(200, 5),
    "a verdict alone": http(200, {"gate": "pass"}),
    "items that are none": http(200, {"items": {"a": 1}, "next": 5}),
    "an endless list": http(200, {"items": [], "missing_until": None, "next": "a"}),
    "nested deep": http(200, b"[" * 100_000),
    "no text": http(200, b'{"gate":"\xff"}'),
    "compressed, it says": http(200, {}, "Content-Encoding: gzip"),
    "half a character": http(200, {"gate": "\ud800"}),
    "no content": http(204),
    "a problem that is none": http(422, {"code": 5, "detail": "\x1b[31m"}),
}


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("answer", OTHERS_ANSWERS.values(), ids=OTHERS_ANSWERS)
def test_who_answers_as_no_aggregator_does_is_none(
    answer: bytes, command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever it sends, a command says so in a line, and a gate never takes it for a verdict."""
    run = [] if command == "runs" else ["run"]
    with Unruly(answering(answer)) as other:
        assert main([command, *run, "--url", other.url]) == 4
    out, err = capfd.readouterr()
    told = f"rankfold {command}: what answers at {other.url} is no aggregator: "
    assert (out, err.startswith(told), err.count("\n")) == ("", True, 1)
    assert "is --url (RANKFOLD_URL) right?" in err
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("status", "code", "more"),
    [
        (400, "bad_request", {}),
        (503, "unavailable", {}),
        (422, "inconsistent", {"errors": [{"pointer": "/\x1b[2J", "reason": "\x1b[31m"}]}),
    ],
)
def test_what_a_server_says_does_nothing_to_a_terminal(
    status: int, code: str, more: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its characters are shown, whether it is the end or a reason to wait."""
    problem = {"type": "x", "title": "x", "status": status, "retryable": status == 503}
    problem |= {"detail": "\x1b[31mred", "code": code} | more
    with Unruly(answering(http(status, problem))) as server:
        assert main(["gate", "run", "--wait", "0.1", "--url", server.url]) in (2, 4)
    err = capsys.readouterr().err
    assert r"\x1b[31m" in err
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (["--from", "6"], "no iteration was reported from 6 on, the newest is 5"),
        (["--from", "2", "--series", "s"], ": nothing was reported"),
        (["--from", "9", "--to", "12"], "no iteration was reported from 9 on, the newest is 5"),
        (["--to", "2"], "no iteration was reported up to 2, the oldest is 3"),
        (["--from", "4", "--to", "4"], "no series was reported"),
    ],
)
def test_gate_tells_where_the_run_has_iterations(
    server: Server, ask: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who asks beyond its end, or before its beginning, is told where that is."""
    rows = [partial(iteration=iteration) for iteration in (3, 5)]
    assert server.report(run="late", rank=0, partials=rows).status_code == 200
    assert main(["gate", "late", "--url", server.url, *ask]) == 3
    assert told in capsys.readouterr().out


def test_totals_help_explains_each_column(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for each title of the table, and rules of which there are no others."""
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["totals", "--help"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    explained = {words[0]: " ".join(words[1:]) for words in lines if words}
    row = {"key": "loss", "iteration": 0, "microbatch": 0, "value": 2.0, "rule": "mean"}
    worse = partial(count=1, max=0.5, sum=0.5, sum_sq=0.25, ulp_max=3)
    scalars = [{**row, "weight": 3}, {**row, "microbatch": 1, "value": "NaN"}]
    said = server.report(run="told", rank=0, partials=[worse], scalars=scalars)
    assert said.status_code == 200, said.text
    assert main(["totals", "told", "--url", server.url]) == 0
    titles, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert set(titles) <= explained.keys()
    shown = {row[0]: dict(zip(titles, row, strict=True)) for row in rows}
    assert all(row["rule"] in explained["rule"] for row in shown.values())
    loss = shown.pop("loss")
    assert {title: loss[title] for title in titles[2:]} == {
        **{"value": "2", "count": "1", "valid": "-"},
        **{"nonfinite": "1", "sum": "6", "max": "2"},
    }
    alike = {tuple(row[title] for title in titles[3:]) for row in shown.values()}
    assert alike == {("1", str(worse["valid"]), "0", "0.5", "0.5")}


@pytest.mark.parametrize("command", [["gate", "run"], ["runs"], ["totals", "run"]])
def test_an_address_with_a_path_that_is_none_is_no_aggregators(
    server: Server, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its 404 is not taken for one about a run: every command ends as at a foreign server."""
    assert main([*command, "--url", f"{server.url}/x"]) == 4
    error = capsys.readouterr().err
    assert f"{server.url}/x is no Rankfold aggregator's address" in error
    assert "--url" in error


def test_a_run_that_is_not_known_is_no_wrong_address(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no data for the gate, and is a failure for the others."""
    assert main(["gate", "other", "--url", server.url]) == 3
    assert main(["totals", "other", "--url", server.url]) == 1
    assert capsys.readouterr().err.count("'rankfold runs' lists runs") == 2


def test_a_run_that_goes_on_passes_with_a_word_that_this_is_not_final(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time is up: exit 0 so far, or 3 with --require-finished."""
    waited = ["gate", "run", "--url", server.url, "--wait", "0.1"]
    assert main(waited) == 0
    assert "not final after 0.1 s: the run is running" in capsys.readouterr().err
    assert main([*waited, "--require-finished"]) == 3


def full(server: Server, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell, where its streams lead to a disk that is full."""
    line = f"{sys.executable} -m rankfold_service.cli.main {command}"
    return subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "RANKFOLD_URL": server.url},
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("runs", 1),
        ("totals run --json", 1),
        ("ranks run", 1),
        ("worst run", 1),
        ("export run", 1),
        ("gate run", 2),
        ("gate run --json", 2),
        ("watch run", 2),
    ],
)
def test_what_cannot_be_printed_is_a_failure_and_no_verdict(
    server: Server, command: str, code: int
) -> None:
    """It is told in one line; where 1 is what a mismatch ends with, the code is 2."""
    done, name = full(server, f"{command} >/dev/full"), command.split(maxsplit=1)[0]
    complaint = f"rankfold {name}: its output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (code, complaint)
    assert full(server, f"{command} >/dev/full 2>/dev/full").returncode == code


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("gate run --wait 0.1", 0),
        ("gate run --wait 0.1 --require-finished", 3),
        ("gate other", 3),
        ("gate --nonsense", 2),
        ("runs --project other", 1),
        ("totals run --rank 7", 1),
        ("totals other", 1),
        ("runs --url http://127.0.0.1:9", 4),
    ],
)
def test_errors_that_cannot_be_printed_change_nothing(
    server: Server, command: str, code: int
) -> None:
    """The exit code is what it is with a disk that has room, and so is the output."""
    done, quiet = full(server, command), full(server, f"{command} 2>/dev/full")
    assert done.stderr
    assert (done.returncode, quiet.returncode, quiet.stdout) == (code, code, done.stdout)
