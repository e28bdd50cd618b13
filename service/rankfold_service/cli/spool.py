"""`rankfold spool flush`: delivers what trainers left in a spool, by the client's own program."""

from __future__ import annotations

import argparse
import os
import sys

from rankfold_service.cli import options
from rankfold_service.cli.children import attended

DESCRIPTION = """\
Delivers what trainers with a spool (RANKFOLD_SPOOL_DIR) had not delivered when they ended, however
they ended. Reports that arrived before count once. What belongs to a trainer that lives is left to
it, and so is what could not be delivered.
"""

EPILOG = """\
examples:
  rankfold spool flush /var/tmp/rankfold
  rankfold spool flush /var/tmp/rankfold --url http://aggregator:9814 --timeout 600

exit codes:
  0  nothing is left
  1  a report was refused, as the log says, and is gone; or a file cannot be read and is left
  2  wrong usage, or the aggregator wants another token
  4  no aggregator answers, or it cannot answer now; what is left is named
"""


def add_parser(subparsers: options.Subparsers) -> None:
    """Add `spool` to the command line."""
    parser = options.new_parser(subparsers, "spool", run, DESCRIPTION, EPILOG)
    parser.add_argument("what", choices=("flush",), help="what to do")
    parser.add_argument("folder", metavar="DIR", help="the spool's directory")
    parser.add_argument(
        "--timeout",
        type=options.amount,
        default=60.0,
        metavar="SECONDS",
        help="how long to go on while nothing gets through (default: %(default)g)",
    )
    options.add_aggregator(parser, scope="write")


def run(args: argparse.Namespace) -> int:
    """Run the client's program and return its exit code."""
    # Not on the command line, which everybody on the machine can read: a URL may have a password.
    environment = {**os.environ, "RANKFOLD_URL": args.url}
    if args.token is not None:
        environment["RANKFOLD_TOKEN"] = args.token
    command = [sys.executable, "-m", "rankfold_client.spool", args.what]
    command += ["--timeout", str(args.timeout), "--", args.folder]
    code, _ = attended(command, env=environment)
    return code
