"""The command line explains itself, fails in one line, and ends with the codes it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankfold import __version__
from rankfold.errors import (
    Forbidden,
    NotFound,
    RankfoldError,
    RequestError,
    StoreRefused,
    StoreUnavailable,
    Unreachable,
)
from rankfold_service.cli import main as module
from rankfold_service.cli.main import COMMANDS, Command, exit_code, main
from rankfold_service.cli.serve import TIDY_SECONDS
from support.documents import ROOT
from unit.service.cli.canned import CannedAggregator


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter as a user would."""
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_main_prints_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is the package's."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rankfold {__version__}\n"


def test_main_help_names_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """Help shows what there is, how it is used and how it ends."""
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"    {name:9} {command.summary}\n" in shown
    for line in ("examples:", "exit codes:", "  4  no aggregator answers", "environment:"):
        assert line in shown
    assert (
        "  1  failed, or what is asked for is not known; "
        "of gate, watch and compare: fail or invalid\n"
    ) in shown
    assert "  3  of these only: incomplete, no data; of gate: a run that is" in shown


def test_main_names_no_extra_that_the_readme_does_not() -> None:
    """Who is told to install one finds it where the message says."""
    readme = (ROOT / "README.md").read_text()
    for extra in module.EXTRAS.values():
        assert f"`{extra}`" in readme


def test_main_help_of_serve_says_when_runs_are_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    """What retention acts on, and how often, as it is."""
    assert main(["serve", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"looked for at the start and then every {TIDY_SECONDS:g} s" in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_main_help_of_a_command_has_an_example_and_exit_codes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each command says what it does, how it is called and how it ends."""
    monkeypatch.setenv("COLUMNS", "100")
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"\n  rankfold {name} " in shown or f"\n  rankfold {name}\n" in shown
    assert "exit codes:" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_main_help_imports_no_command() -> None:
    """Help is quick: nothing but the core and the standard library is loaded for it."""
    code = (
        "import sys; from rankfold_service.cli.main import main; main(['--help']); "
        "print([m for m in ('httpx', 'fastapi', 'uvicorn', 'torch') if m in sys.modules])"
    )
    assert python("-c", code).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "rankfold: error: the following arguments are required: COMMAND"),
        (["gates"], "rankfold: error: argument COMMAND: invalid choice: 'gates'"),
        (["gate"], "rankfold gate: error: the following arguments are required: RUN"),
        (["gate", "a/b"], "argument RUN: a name must not contain '/'"),
        (["gate", ".."], "argument RUN: a name must not be '.' or '..'"),
        (["gate", "r", "--project", ""], "argument --project: a name must have 1 to 200"),
        (["gate", "r", "--series", "a\tb"], "a name must not contain control characters"),
        (["gate", "r", "--attempts", "-1"], "argument --attempts: must be effective, all or"),
        (["gate", "r", "--attempts=-1"], "must be effective, all or an attempt's number"),
        (["gate", "r", "--from", "x"], "argument --from: must be an integer, at least 0"),
        (["gate", "r", "--to", "2147483648"], "argument --to: must be an integer"),
        (["gate", "r", "--max-diff-max", "nan"], "must be a number, at least 0, not 'nan'"),
        (["gate", "r", "--wait", "inf"], "argument --wait: must be a number, at least 0"),
        (["gate", "r", "--wait", "soon"], "must be a number, at least 0, not 'soon'"),
        (["worst", "r", "--limit", "0"], "must be an integer, at least 1, not '0'"),
        (["gate", "r", "--max-diff", "1"], "rankfold gate: error: unrecognized arguments: --max-"),
        (["gate", "r", "--wiat", "1"], "arguments: --wiat 1 (did you mean --wait?)"),
        (["gate", "r", "--max-dif-max=1"], "--max-dif-max=1 (did you mean --max-diff-max?)"),
        (["serve", "--stale-aftr", "1"], "rankfold serve: error: unrecognized arguments: --stale"),
        (["totals", "r", "--zzz"], "rankfold totals: error: unrecognized arguments: --zzz\n"),
        (["totals", "r", "s"], "rankfold totals: error: unrecognized arguments: s\n"),
        (["--json", "runs"], "rankfold: error: the command comes first, and its options after it"),
    ],
)
def test_main_refuses_wrong_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    """A wrong option is exit 2 and a line that says what would be right."""
    assert main(arguments) == 2
    assert complaint in capsys.readouterr().err


def test_main_shows_the_usage_of_the_command_that_is_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A mistyped option brings the options that there are."""
    assert main(["worst", "r", "--limt", "5"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("usage: rankfold worst ")
    assert "--limit" in error


def test_main_refuses_a_wrong_name_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the environment says is checked like an option."""
    monkeypatch.setenv("RANKFOLD_PROJECT", "a/b")
    assert main(["gate", "r"]) == 2
    assert "argument --project: a name must not contain '/'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "command", "code"),
    [
        (NotFound(""), "gate", 3),
        (NotFound(""), "totals", 1),
        (StoreRefused(""), "migrate", 2),
        (Forbidden(""), "runs", 2),
        (RequestError(""), "gate", 2),
        (StoreUnavailable(""), "gate", 4),
        (Unreachable(""), "runs", 4),
        (RankfoldError(""), "gate", 4),
    ],
)
def test_main_ends_with_the_code_of_the_error(
    error: RankfoldError, command: str, code: int
) -> None:
    """Codes are by kind of error; only the gate tells missing data apart."""
    assert exit_code(error, command) == code


@pytest.mark.parametrize(
    ("status", "code", "line"),
    [
        (401, "unauthenticated", "no: give a token with --token or RANKFOLD_TOKEN"),
        (403, "forbidden", "no: name its project with --project, or give another with --token or"),
        (422, "inconsistent", "/: no"),
    ],
)
def test_main_says_in_one_line_what_to_do(
    aggregator: CannedAggregator,
    capsys: pytest.CaptureFixture[str],
    status: int,
    code: str,
    line: str,
) -> None:
    """An error has a line on standard error, and no traceback."""
    aggregator.problem("/projects", status, code, "no")
    assert main(["runs"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"rankfold runs: {line}")
    assert (out, err.count("\n")) == ("", 1)


def test_main_tells_a_scope_that_is_lacking_from_a_project(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """A token without the scope to read reads no other project either."""
    aggregator.problem("/projects", 403, "forbidden", "the token 't' lacks the scope 'read'")
    assert main(["runs"]) == 2
    assert capsys.readouterr().err == (
        "rankfold runs: the token 't' lacks the scope 'read': "
        "give one that has it with --token or RANKFOLD_TOKEN\n"
    )


def test_main_names_the_extra_that_is_missing(tmp_path: Path) -> None:
    """Without the service's packages a command says how to get them."""
    (tmp_path / "httpx.py").write_text("raise ModuleNotFoundError('no', name='httpx')")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "from rankfold_service.cli.main import main; sys.exit(main(['runs']))"
    )
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (
        2,
        "rankfold runs: needs httpx: install the extra 'service', as the README says\n",
    )


def test_main_does_not_blame_an_extra_for_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of ours that is missing is a defect, and shown as one."""
    monkeypatch.setitem(COMMANDS, "runs", Command("rankfold_service.cli.nowhere:add", ""))
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        main(["runs"])


def test_main_ends_quietly_when_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is no error to explain."""

    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_run", interrupt)
    assert main(["runs"]) == 130
    assert capsys.readouterr() == ("", "")


def test_main_ends_quietly_when_nobody_reads() -> None:
    """A closed pipe, as of `head`, gets no traceback."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "rankfold_service.cli.main", "rules"],
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (141, b"")


def test_main_says_when_its_output_cannot_be_written() -> None:
    """A full disk is a failure, told in one line."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rankfold_service.cli.main", "rules"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "rankfold rules: its output cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        ("rules >&-", 1, "rankfold rules: its output cannot be written: standard output is closed"),
        ("--help >&-", 1, "rankfold: its output cannot be written: standard output is closed"),
        ("rules --rules none <&- >&-", 2, "rankfold rules: none cannot be read: "),
        ("rules 2>&-", 0, ""),
        ("rules --rules none 2>&-", 2, ""),
        ("rules --rules none >&- 2>&-", 2, ""),
        ("rules >&- 2>&-", 1, ""),
        ("gate <&- 2>&-", 2, ""),
    ],
)
def test_main_bears_with_streams_that_are_closed(command: str, code: int, error: str) -> None:
    """What cannot be printed is a failure; errors never turn up on standard output."""
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m rankfold_service.cli.main {command}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code
    assert done.stderr.startswith(error)
    assert done.stderr.count("\n") == bool(error)
    assert bool(done.stdout) == (code == 0)


def test_main_does_not_blame_its_output_for_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that names a file is a defect of the command that let it through."""

    def fail(*_: object) -> int:
        raise FileNotFoundError(2, "No such file or directory", "somewhere")

    monkeypatch.setattr(module, "_run", fail)
    with pytest.raises(FileNotFoundError, match="somewhere"):
        main(["runs"])


def test_main_prints_what_the_encoding_lacks(aggregator: CannedAggregator) -> None:
    """A name that a terminal cannot show never ends a command."""
    run = {"project": "実験", "run": "r", "gate": "pass", "state": "stale", "attempts": []}
    run |= {"world_size": 1, "last_iteration": 0, "last_report": 0.0}
    aggregator.answer("/projects/p/runs", {"items": [run], "next": None})
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "rankfold_service.cli.main", "runs", "--project", "p"],
        capture_output=True,
        env=environment,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\n??     r    pass" in done.stdout
