"""Options that several commands share, and what their values must look like."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable
from typing import Any, TypeAlias

from rankfold.errors import ConfigurationError
from rankfold.names import name_fault
from rankfold_service.settings import Settings

DEFAULT_URL = "http://127.0.0.1:9814"
DEFAULT_PROJECT = "default"
DEFAULT_STORE = Settings().store
MAX_INDEX = 2**31 - 1
MAX_COUNT = 2**53 - 1

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Handler = Callable[[argparse.Namespace], int]


def new_parser(
    subparsers: Subparsers, name: str, handler: Handler, description: str, epilog: str
) -> argparse.ArgumentParser:
    """Add a command; its handler gets the parsed options and returns the exit code.

    The options know their `command`, and the `parser` that explains it.
    """
    parser = subparsers.add_parser(
        name,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(handler=handler, command=name, parser=parser)
    return parser


def add_aggregator(parser: argparse.ArgumentParser, scope: str = "read") -> None:
    """Add which aggregator is asked, and by whom."""
    group = parser.add_argument_group("aggregator")
    group.add_argument(
        "--url",
        default=os.environ.get("RANKFOLD_URL") or DEFAULT_URL,
        help=f"where it listens (RANKFOLD_URL, default: {DEFAULT_URL})",
    )
    group.add_argument(
        "--token",
        default=os.environ.get("RANKFOLD_TOKEN"),
        help=f"a token with the scope {scope}, where it asks for one (RANKFOLD_TOKEN)",
    )


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add which store on this machine a command works on."""
    parser.add_argument(
        "--store",
        metavar="URL",
        default=os.environ.get("RANKFOLD_STORE") or DEFAULT_STORE,
        help=f"the store (RANKFOLD_STORE, default: {DEFAULT_STORE})",
    )


def add_project(parser: argparse.ArgumentParser, default: str | None, meaning: str) -> None:
    """Add the project; `meaning` says what it is for, and without a default it is all."""
    parser.add_argument(
        "--project",
        type=project_or_run,
        default=os.environ.get("RANKFOLD_PROJECT") or default,
        help=f"{meaning} (RANKFOLD_PROJECT, default: {default or 'all'})",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add a run, its project and its aggregator."""
    parser.add_argument(
        "run",
        metavar="RUN",
        type=project_or_run,
        help="the run's name; one that begins with - comes last, after --",
    )
    add_project(parser, DEFAULT_PROJECT, "the run's project")
    add_aggregator(parser)


def add_attempts(parser: argparse._ActionsContainer, default: str) -> None:
    """Add which attempts are read; `default` says what holds without it."""
    parser.add_argument(
        "--attempts",
        type=attempts,
        metavar="WHICH",
        help="effective (without what a later attempt superseded), all, or an attempt's number "
        f"(default: {default})",
    )


def add_range(parser: argparse._ActionsContainer) -> None:
    """Add which iterations are meant; `check_range` looks at both ends."""
    parser.add_argument(
        "--from",
        type=index,
        dest="first",
        metavar="ITERATION",
        help="the first iteration (default: the run's first)",
    )
    parser.add_argument(
        "--to",
        type=index,
        dest="last",
        metavar="ITERATION",
        help="the last iteration, included (default: the run's last)",
    )


def check_range(first: int | None, last: int | None) -> None:
    """Refuse a range of iterations that ends before it begins."""
    if first is not None and last is not None and first > last:
        raise ConfigurationError(f"--from {first} is after --to {last}")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the form for programs."""
    parser.add_argument("--json", action="store_true", help="print the API's answer, for programs")


def print_json(answer: Any) -> None:
    """Print an answer for programs."""
    print(json.dumps(answer, indent=2, allow_nan=False))


def project_or_run(text: str) -> str:
    """Return a project's or run's name."""
    return _checked_name(text, in_path=True)


def series_or_key(text: str) -> str:
    """Return a series' or key's name."""
    return _checked_name(text, in_path=False)


def _checked_name(text: str, *, in_path: bool) -> str:
    fault = name_fault(text, in_path=in_path)
    if fault:
        raise argparse.ArgumentTypeError(f"a name {fault}")
    return text


def attempts(text: str) -> str:
    """Return which attempts are meant."""
    if text in ("effective", "all"):
        return text
    try:
        return str(index(text))
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(
            f"must be effective, all or an attempt's number, not {text!r}"
        ) from error


def index(text: str) -> int:
    """Return a rank, an iteration or an attempt."""
    return _integer(text, 0, MAX_INDEX)


def count(text: str) -> int:
    """Return how many positions."""
    return _integer(text, 0, MAX_COUNT)


def how_many(text: str) -> int:
    """Return how many items are wanted, at least one."""
    return _integer(text, 1, MAX_INDEX)


def _integer(text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"must be an integer, at least {least}, not {text!r}")
    return int(text)


def amount(text: str) -> float:
    """Return a finite number that is not negative: a difference, or seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"must be a number, at least 0, not {text!r}")
    return value
