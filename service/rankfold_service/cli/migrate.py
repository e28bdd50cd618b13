"""`rankfold migrate`: brings a store to the current schema, or its runs into another store."""

from __future__ import annotations

import argparse

from rankfold.errors import ConfigurationError, StoreRefused
from rankfold_service.cli import options
from rankfold_service.cli.text import counted
from rankfold_service.store.moved import Moved
from rankfold_service.store.opening import migrate, transfer

DESCRIPTION = """\
Brings a store to the schema of this version and prints the migrations that it applied. A store
that is current is left as it is; one that is not there is refused, for `rankfold serve` makes new
ones. On SQLite stop the aggregator first, and keep a copy of the store; on PostgreSQL those of the
older version may run on.

With --from and --to it moves all runs of a SQLite store into a PostgreSQL database, each whole, and
compares what came of it, exactly. Stop the aggregator first. If it breaks off, run it again: what
was moved is compared and left. A run that is there with other content, such as one that went on
reporting there, is left as it is, and the others are moved.
"""

EPILOG = """\
examples:
  rankfold migrate --store sqlite:////var/lib/rankfold/rankfold.db
  rankfold migrate --store postgresql://owner@db.example/rankfold
  rankfold migrate --from sqlite:///rankfold.db --to postgresql://owner@db.example/rankfold

exit codes: 0 done, 2 wrong usage, a store that is not there or must not be opened, or a target that
has a run with other content, 4 the target cannot be written now
"""


def add_parser(subparsers: options.Subparsers) -> None:
    """Add `migrate` to the command line."""
    parser = options.new_parser(subparsers, "migrate", run, DESCRIPTION, EPILOG)
    options.add_store(parser)
    parser.add_argument("--from", dest="source", metavar="URL", help="move the runs of this store")
    parser.add_argument("--to", dest="target", metavar="URL", help="into this one")


def run(args: argparse.Namespace) -> int:
    """Apply what is missing, or move runs, and print what was done."""
    if args.source or args.target:
        if not (args.source and args.target):
            raise ConfigurationError("--from and --to go together: name both stores")
        return _transfer(args.source, args.target)
    applied = migrate(args.store)
    for name in applied:
        print(f"applied {name}")
    if not applied:
        print("the store is current")
    return 0


def _transfer(source: str, target: str) -> int:
    of = different = 0
    for moved in transfer(source, target):
        of, different = moved.of, different + (moved.different is not None)
        project, run = moved.name
        size = f"{counted(moved.ranks, 'rank')}, {counted(moved.iterations, 'iteration')}"
        print(
            f"{moved.number} of {of}: run {run!r} of project {project!r}: {_fate(moved)} ({size})",
            flush=True,
        )
    if different:
        raise StoreRefused(
            f"not moved: {different} of {of} runs, for they are there with other content; "
            "delete one there to move it again"
        )
    if not of:
        print("there are no runs to move")
    return 0


def _fate(moved: Moved) -> str:
    if moved.different is not None:
        return f"NOT MOVED, is there with other content: {moved.different}"
    return "was there already, equal" if moved.was_there else "moved and compared"
