"""`rankfold migrate`: brings a store to the current schema, once, before the aggregator runs."""

from __future__ import annotations

import argparse

from rankfold_service.cli import options
from rankfold_service.store.opening import migrate

DESCRIPTION = """\
Brings a store to the schema of this version and prints the migrations that it applied. A store
that is current is left as it is; one that is not there is refused, for `rankfold serve` makes new
ones. Stop the aggregator first, and keep a copy of the store.
"""

EPILOG = """\
examples:
  rankfold migrate --store sqlite:///rankfold.db
  rankfold migrate --store sqlite:////var/lib/rankfold/rankfold.db

exit codes: 0 done, 2 wrong usage or a store that is not there or must not be opened
"""


def add_parser(subparsers: options.Subparsers) -> None:
    """Add `migrate` to the command line."""
    options.add_store(options.new_parser(subparsers, "migrate", run, DESCRIPTION, EPILOG))


def run(args: argparse.Namespace) -> int:
    """Apply what is missing and print it."""
    applied = migrate(args.store)
    for name in applied:
        print(f"applied {name}")
    if not applied:
        print("the store is current")
    return 0
