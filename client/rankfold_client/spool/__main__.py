"""`python -m rankfold_client.spool flush DIR`: what `rankfold spool flush` runs, without torch."""

from __future__ import annotations

import argparse
import functools
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rankfold_client.seconds import to_seconds
from rankfold_client.spool.flush import USAGE, flush
from rankfold_client.spool.names import segments_in
from rankfold_client.transport import DEFAULT_URL, HttpTransport

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; the token comes from RANKFOLD_TOKEN."""
    parser = argparse.ArgumentParser(prog="rankfold spool", allow_abbrev=False)
    parser.add_argument("what", choices=("flush",))
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--url", default=os.environ.get("RANKFOLD_URL") or DEFAULT_URL)
    parser.add_argument("--timeout", type=float, default=60.0)
    args = parser.parse_args(argv)
    logging.basicConfig(format="%(message)s")
    try:
        # The command starts this program with Ctrl-C blocked, for imports may take long.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return _flush(args)
    except KeyboardInterrupt:
        return INTERRUPTED


def _flush(args: argparse.Namespace) -> int:
    say = functools.partial(print, flush=True)
    try:
        found = segments_in(args.folder)
    except OSError as error:
        say(f"rankfold spool: {args.folder}: {error.strerror}", file=sys.stderr)
        return USAGE
    try:
        patience = to_seconds("--timeout", args.timeout)
        transport = HttpTransport(args.url, os.environ.get("RANKFOLD_TOKEN"))
        if not found:
            say(f"there is no spool in {args.folder}, or nothing is left in it")
        return flush(args.folder.absolute(), transport, patience, say, time.monotonic)
    except ValueError as error:
        print(f"rankfold spool: {error}", file=sys.stderr)  # noqa: T201
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
