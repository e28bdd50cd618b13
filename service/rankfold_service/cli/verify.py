"""`rankfold verify`: whether a store's totals are what its iterations fold to."""

from __future__ import annotations

import argparse
import logging

from rankfold_service.cli import options
from rankfold_service.cli.text import counted
from rankfold_service.store.opening import verify

DESCRIPTION = """\
Opens a store as a start would, folds every iteration of every run anew, compares with every stored
total, exactly, and names what is damaged. Nothing is changed. On a SQLite store no aggregator may
run: verify a backup. On PostgreSQL they may.
"""

EPILOG = """\
examples:
  rankfold backup --to /tmp/copy.db && rankfold verify --store sqlite:////tmp/copy.db
  rankfold verify --store postgresql://rankfold@db.example/rankfold

exit codes: 0 all agrees, 1 something differs or is damaged, 2 wrong usage or a store that must not
be opened
"""


def add_parser(subparsers: options.Subparsers) -> None:
    """Add `verify` to the command line."""
    options.add_store(options.new_parser(subparsers, "verify", run, DESCRIPTION, EPILOG))


def run(args: argparse.Namespace) -> int:
    """Print each difference; silence would leave a doubt, so agreement is said too."""
    # What the store logs of damage is printed here.
    logging.getLogger("rankfold.store").addHandler(logging.NullHandler())
    faults = 0
    for fault in verify(args.store):
        faults += 1
        print(fault)
    print(counted(faults, "difference") if faults else "every total is what its iterations fold to")
    return 1 if faults else 0
