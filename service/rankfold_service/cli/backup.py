"""`rankfold backup`: a consistent copy of a store, taken while the aggregator goes on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rankfold_service.cli import options
from rankfold_service.store.opening import backup

DESCRIPTION = """\
Copies a store as it is at one moment, also while an aggregator writes to it: every report that was
acknowledged before is in the copy. The copy appears whole or not at all, and is a store itself.
"""

EPILOG = """\
To restore: stop the aggregator, move the damaged file and the files beside it (-wal, -shm) away,
copy the backup to its place, start the aggregator.

examples:
  rankfold backup --store sqlite:////var/lib/rankfold/rankfold.db --to /backup/rankfold-monday.db
  rankfold verify --store sqlite:////backup/rankfold-monday.db

exit codes: 0 done, 2 wrong usage, a store that cannot be copied, or a target that is there
"""


def add_parser(subparsers: options.Subparsers) -> None:
    """Add `backup` to the command line."""
    parser = options.new_parser(subparsers, "backup", run, DESCRIPTION, EPILOG)
    options.add_store(parser)
    parser.add_argument(
        "--to", metavar="PATH", type=Path, required=True, help="where the copy goes"
    )


def run(args: argparse.Namespace) -> int:
    """Copy, and say how much."""
    size = backup(args.store, args.to, _show)
    print(f"{args.to}: {size:,} bytes")
    return 0


def _show(left: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if left == 0 else "\r"
        print(f"{total - left:,} of {total:,} pages", end=end, file=sys.stderr, flush=True)
