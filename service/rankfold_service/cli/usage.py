"""What is said of a command line that is wrong: by the command that is meant, with what is near."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line; wrong usage ends the process with the right usage."""
    args, unknown = parser.parse_known_args(arguments)
    own: argparse.ArgumentParser | None = getattr(args, "parser", None)
    if own is None:
        parser.error("the command comes first, and its options after it")
    if unknown:
        own.error(f"unrecognized arguments: {' '.join(unknown)}{_near(own, unknown)}")
    return args


def near(word: str, known: Sequence[str]) -> str | None:
    """Return which of the known words is probably meant."""
    return next(iter(difflib.get_close_matches(word, known, n=1)), None)


def _near(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> str:
    flags = list(parser._option_string_actions)
    given = [word.partition("=")[0] for word in unknown if word.startswith("-")]
    meant = [flag for word in given if (flag := near(word, flags)) is not None]
    return f" (did you mean {' and '.join(meant)}?)" if meant else ""
