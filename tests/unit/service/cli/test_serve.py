"""`rankfold serve` says where it listens, answers, and ends as a success when told to stop."""

from __future__ import annotations

import io
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rankfold.answers import ProjectsAnswer
from rankfold_service.cli.api import Api
from rankfold_service.cli.main import main
from rankfold_service.cli.serve import stoppable


@contextmanager
def serving(
    *options: str, address: str = "127.0.0.1:0"
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run an aggregator on a free port and yield its process and the URL that it printed."""
    command = [sys.executable, "-m", "rankfold_service.cli.main", "serve", *options]
    with subprocess.Popen(
        [*command, "--listen", address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().removeprefix("rankfold: listening on ").strip()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_answers_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    """The printed URL answers, a signal ends it with 0, and the log is one JSON object a line."""
    with serving("--store", f"sqlite:///{tmp_path}/rankfold.db") as (process, url):
        with Api(url) as api:
            assert api.get("/projects", ProjectsAnswer) == {"items": [], "next": None}
        process.send_signal(number)
        _, log = process.communicate(timeout=30)
    assert process.returncode == 0
    assert [json.loads(line)["message"] for line in log.splitlines()] == ["started", "stopped"]


def test_serve_warns_of_a_variable_that_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistyped variable is named in the log, once, with what was probably meant."""
    monkeypatch.setenv("RANKFOLD_STALE_AFTR", "60")
    assert warnings_of("127.0.0.1:0") == [
        "RANKFOLD_STALE_AFTR is no setting and is ignored: did you mean RANKFOLD_STALE_AFTER?"
    ]


def test_serve_warns_where_others_may_do_everything(tmp_path: Path) -> None:
    """Listening on every address without tokens is worth a line; with tokens it is not."""
    (warning,) = warnings_of("0.0.0.0:0")
    assert "may do everything: --tokens" in warning
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[[token]]\nname = "t"\ntoken = "secret"\nscopes = ["read"]\n')
    assert warnings_of("0.0.0.0:0", "--tokens", str(tokens)) == []


def warnings_of(address: str, *options: str) -> list[str]:
    """Return what an aggregator warns of at its start."""
    with serving("--store", "memory://", *options, address=address) as (process, _):
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
    lines = [json.loads(line) for line in log.splitlines()]
    return [line["message"] for line in lines if line["level"] == "warning"]


def test_serve_refuses_a_store_that_is_in_use(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two aggregators never write one file; nor do they listen on one address."""
    monkeypatch.setattr("rankfold_service.cli.serve.configure_logging", lambda *_: None)
    store = f"sqlite:///{tmp_path}/rankfold.db"
    with serving("--store", store) as (_, url):
        assert main(["serve", "--listen", "127.0.0.1:0", "--store", store]) == 2
        assert main(["serve", "--listen", url.removeprefix("http://"), "--store", store]) == 2
    in_use, clash = capfd.readouterr().err.splitlines()
    assert "is in use by another process" in in_use
    assert "Address already in use" in clash


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--listen", "nowhere"], "--listen: must be HOST:PORT"),
        (["--store", "mysql://h/d"], "unknown store 'mysql://h/d'"),
        (["--rules", "/nonexistent.toml"], "/nonexistent.toml cannot be read"),
        (["--tokens", "/nonexistent.toml"], "/nonexistent.toml cannot be read: No such file or"),
    ],
)
def test_serve_refuses_settings_that_cannot_be_used(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    complaint: str,
) -> None:
    """A wrong setting is one line and exit 2, before anything is opened."""
    monkeypatch.setattr("rankfold_service.cli.serve.configure_logging", lambda *_: None)
    monkeypatch.setenv("RANKFOLD_LISTEN", "127.0.0.1:0")
    assert main(["serve", *options]) == 2
    error = capsys.readouterr().err
    assert (error.startswith("rankfold serve: "), error.count("\n")) == (True, 1)
    assert complaint in error


class Interrupted(io.RawIOBase):
    """Standard error, in the first write to which a wish to stop comes."""

    def __init__(self) -> None:
        self.written = b""

    def writable(self) -> bool:
        """Say that it is."""
        return True

    def write(self, data: Any) -> int:
        """Keep what is written."""
        first, self.written = not self.written, self.written + bytes(data)
        if first:
            signal.raise_signal(signal.SIGTERM)
        return len(data)


def test_wish_to_stop_is_heard_in_the_middle_of_a_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A start that waits for its store ends, whatever it was doing at that moment."""
    raw = Interrupted()
    stream = io.TextIOWrapper(io.BufferedWriter(raw), line_buffering=True)
    monkeypatch.setattr(sys, "stderr", stream)
    log = logging.getLogger("rankfold")
    monkeypatch.setattr(log, "handlers", [logging.StreamHandler(stream)])
    monkeypatch.setattr(log, "level", logging.INFO)
    with pytest.raises(SystemExit) as ended, stoppable():
        logging.getLogger("rankfold.store").warning("waiting for the store")
    assert ended.value.code == 0
    assert raw.written.endswith(b"stopped\n")
