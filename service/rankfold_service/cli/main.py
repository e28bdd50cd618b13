"""The command `rankfold`: finds the command that is meant, runs it, says in a line what failed."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from rankfold import __version__
from rankfold.errors import (
    ConfigurationError,
    Forbidden,
    NotFound,
    RankfoldError,
    RequestError,
    Unauthenticated,
    Unreachable,
)
from rankfold_service.cli import usage
from rankfold_service.cli.text import tell

DONE, FAILED, USAGE, NO_DATA, UNREACHABLE, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 3, 4, 130, 141


class Command(NamedTuple):
    """Where a command is, as module:function, and what it does in half a line."""

    adder: str
    summary: str


HERE = "rankfold_service.cli"
COMMANDS = {
    "serve": Command(f"{HERE}.serve:add_parser", "run the aggregator"),
    "gate": Command(f"{HERE}.gate:add_parser", "print the verdict on a run, and why"),
    "watch": Command(f"{HERE}.watch:add_parser", "follow a run live"),
    "runs": Command(f"{HERE}.reads:add_runs", "list runs: state, attempts, last report, gate"),
    "totals": Command(f"{HERE}.reads:add_totals", "every key of a run, folded"),
    "ranks": Command(f"{HERE}.reads:add_ranks", "what each rank reported, and what is missing"),
    "worst": Command(f"{HERE}.reads:add_worst", "the worst tokens of a run, largest first"),
    "compare": Command(f"{HERE}.compare:add_parser", "compare two dumps of log-probs offline"),
    "export": Command(f"{HERE}.export:add_parser", "iterations as CSV, JSON lines or Parquet"),
    "rules": Command(
        f"{HERE}.rules:add_parser", "print the rules in force, and what a key matches"
    ),
    "migrate": Command(f"{HERE}.migrate:add_parser", "bring a store to the current schema"),
    "backup": Command(f"{HERE}.backup:add_parser", "copy a store, also while it is in use"),
    "verify": Command(f"{HERE}.verify:add_parser", "fold a store anew and compare its totals"),
    "spool": Command(f"{HERE}.spool:add_parser", "deliver what dead trainers left in a spool"),
    "demo": Command(f"{HERE}.demo:add_parser", "the whole way on real log-probs"),
}

DESCRIPTION = """\
Folds per-microbatch comparison statistics of RL post-training over ranks and iterations:
exactly, once, durably.
"""

EPILOG = """\
examples:
  rankfold demo                                see the whole way on this machine
  rankfold serve --store sqlite:///rankfold.db run the aggregator on port 9814
  rankfold runs                                list what was reported
  rankfold gate my-run --wait 600 --require-finished
                                               wait for the verdict, in a script
  rankfold COMMAND --help                      explain one command

exit codes:
  0  done; of gate, watch and compare: pass
  1  failed, or what is asked for is not known; of gate, watch and compare: fail or invalid
  2  wrong usage, a setting that cannot be used, or a refused request; of gate, watch and
     compare also: their output cannot be written, which is 1 of all others
  3  of these only: incomplete, no data; of gate: a run that is not known
  4  no aggregator answers, or it cannot answer now

environment:
  RANKFOLD_URL, RANKFOLD_PROJECT and RANKFOLD_TOKEN stand for --url, --project and --token.
"""

# Their 1 is a verdict, and so never says that something else failed.
JUDGES = ("gate", "watch", "compare")

EXIT_CODES: tuple[tuple[type[RankfoldError], int], ...] = (
    (NotFound, FAILED),
    (ConfigurationError, USAGE),
    (RequestError, USAGE),
    (RankfoldError, UNREACHABLE),
)

HINTS: tuple[tuple[type[RankfoldError], str], ...] = (
    (NotFound, "'rankfold runs' lists runs and their attempts"),
    (Unauthenticated, "give a token with --token or RANKFOLD_TOKEN"),
    (Unreachable, "is --url (RANKFOLD_URL) right? 'rankfold serve' starts an aggregator"),
)

LACKS_SCOPE = "lacks the scope"  # so says the aggregator
SCOPE_HINT = "give one that has it with --token or RANKFOLD_TOKEN"
PROJECT_HINT = "name its project with --project, or give another with --token or RANKFOLD_TOKEN"

EXTRAS = {
    **dict.fromkeys(
        ("fastapi", "httpx", "httptools", "prometheus_client", "pydantic", "starlette"), "service"
    ),
    **dict.fromkeys(("uvicorn", "uvloop"), "service"),
    "torch": "client",
    "psycopg": "postgres",
    "pyarrow": "parquet",
}


def main(argv: Sequence[str] | None = None, *, begin: Callable[[], object] = lambda: None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: the words after the command's name; None for those of the process.
        begin: is called once the command is imported and about to work.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _replace_closed_streams()
    _never_fail_to_print()
    command = arguments[0] if arguments and arguments[0] in COMMANDS else None
    try:
        return _run(command, arguments, begin)
    except RankfoldError as error:
        _complain(command, _hinted(error, command))
        return exit_code(error, command)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        _complain(command, f"needs {error.name}: install the extra {extra!r}, as the README says")
        return USAGE
    except BrokenPipeError:
        _abandon_output()
        return PIPE_CLOSED
    except OSError as error:
        if error.filename is not None:
            raise
        _abandon_output()
        _complain(command, f"its output cannot be written: {_why(error)}")
        return USAGE if command in JUDGES else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(command: str | None, arguments: list[str], begin: Callable[[], object]) -> int:
    try:
        args = usage.parse(build_parser(command), arguments)
    except SystemExit as stop:  # help, version or wrong usage, already printed
        code = int(stop.code or DONE)
    else:
        begin()
        code = args.handler(args)
    sys.stdout.flush()  # here, where a closed pipe can still be told from success
    return code


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """Return the parser; only the module of the command that is meant gets imported."""
    parser = argparse.ArgumentParser(
        prog="rankfold",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rankfold {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (adder, summary) in COMMANDS.items():
        if name == command:
            module, _, function = adder.partition(":")
            getattr(import_module(module), function)(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


def exit_code(error: RankfoldError, command: str | None) -> int:
    """Return the exit code that an error ends a command with."""
    if isinstance(error, NotFound) and command == "gate":
        return NO_DATA
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def _hinted(error: RankfoldError, command: str | None) -> str:
    """Return what failed and what to do about it, which is never what was just done."""
    hints = [hint for kind, hint in HINTS if isinstance(error, kind)]
    hints = [hint for hint in hints if f"'rankfold {command}'" not in hint]
    if isinstance(error, Forbidden):
        hints.append(SCOPE_HINT if LACKS_SCOPE in str(error) else PROJECT_HINT)
    return ": ".join([str(error), *hints])


def _complain(command: str | None, message: str) -> None:
    tell(command, " ".join(message.split()))


def _why(error: OSError) -> str:
    closed = error.errno == errno.EBADF
    return "standard output is closed" if closed else error.strerror or str(error)


def _replace_closed_streams() -> None:
    """Put something in the place of what the caller closed: `>&-`, `2>&-`.

    Otherwise the next file to be opened would take its number, and what is meant for standard
    error would be printed on standard output. Who writes to standard output is told that it is
    closed, once there is something to write; whom errors are for does not want to know.
    """
    if sys.stdout is None:
        sys.stdout = _nowhere(1, os.O_RDONLY)
    if sys.stderr is None:
        sys.stderr = _nowhere(2, os.O_WRONLY)


def _nowhere(number: int, flags: int) -> io.TextIOWrapper:
    opened = os.open(os.devnull, flags)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)  # a program that a command starts writes there too
    return open(number, "w", encoding="utf-8", closefd=False)


def _never_fail_to_print() -> None:
    """Show what the terminal's encoding lacks as question marks instead of failing.

    Errors that cannot be written do not matter to the command that they are of.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _indifferent(sys.stderr)


class _Indifferent(io.FileIO):
    """A file whose disk may be full: what cannot be written is left out."""

    def write(self, data: Any) -> int:
        """Write what can be written."""
        try:
            return super().write(data) or 0
        except OSError:
            return len(data)


def _indifferent(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """Return a stream for errors, which may not end a command or change its exit code."""
    raw = _Indifferent(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=True
    )


def _abandon_output() -> None:
    """Let the interpreter's last flush go nowhere: nobody reads any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
