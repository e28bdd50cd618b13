"""`rankfold export`: a run's iterations as CSV, JSON lines or Parquet, page by page."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn

from rankfold.answers import IterationsAnswer, TotalsAnswer
from rankfold.errors import ConfigurationError
from rankfold_service.cli import options
from rankfold_service.cli.api import Answer, Api, connect, run_path
from rankfold_service.cli.export_formats import FORMATS, Column, Item, columns_of
from rankfold_service.cli.reads import silent_rank
from rankfold_service.cli.superseded import superseded_note
from rankfold_service.cli.text import counted, tell, visible

PAGE = 200  # iterations; the aggregator reads one page in one go

DESCRIPTION = """\
Writes the iterations of a run, ascending, one row each: iteration, complete, and a column per key.
What does not exist is null, in CSV an empty cell, and never 0. Counts are integers with all their
digits. All else is a double, scalars too (of 2^53 + 1 the last digit is lost, -0.0 is 0.0), with
the digits that give the same double back; a sum beyond the doubles is Infinity or -Infinity, in
JSON lines as a string.
"""

EPILOG = """\
A scalar that was reported as NaN or infinite is in no value: where an iteration has no other of its
key, the cell is null. A line on standard error says how many there are; 'rankfold totals' has them
per key, as nonfinite.

The columns are the keys that the run has when the export begins; of one that appears meanwhile a
line on standard error tells. A key that is called iteration or complete, or so with underscores at
its end, has a column with one more underscore; a line on standard error tells of it.

Memory is bounded however long the run is. A file appears whole or not at all. In Parquet integers
are int64, or decimals without a fraction where a total needs more, and all else is double. Parquet
needs the extra 'parquet'.

examples:
  rankfold export my-run > my-run.csv
  rankfold export my-run --output my-run.parquet
  rankfold export my-run --key training/rollout_logprobs_mismatch_count --from 100 --format jsonl

exit codes:
  0  done
  1  no such run, attempt or rank, or the output cannot be written to the end (a full disk)
  2  wrong usage, a file that cannot be made, a key that the run has not, a refused request, or
     pyarrow is not installed
  4  no aggregator answers, or it cannot answer now
"""


def add_parser(subparsers: options.Subparsers) -> None:
    """Add `export` to the command line."""
    parser = options.new_parser(subparsers, "export", run, DESCRIPTION, EPILOG)
    options.add_run(parser)
    parser.add_argument(
        "--format", choices=FORMATS, help="default: what the name of --output ends in, or csv"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="default: standard output, except for parquet"
    )
    parser.add_argument(
        "--key",
        type=options.series_or_key,
        action="append",
        help="only this key; may be given several times (default: all)",
    )
    options.add_range(parser)
    parser.add_argument(
        "--rank", type=options.index, help="only what this rank reported (default: all)"
    )
    options.add_attempts(parser, "effective")
    parser.set_defaults(json=False)  # as a person reads it: with notes


def run(args: argparse.Namespace) -> int:
    """Write the iterations and return the exit code."""
    options.check_range(args.first, args.last)
    form = _format(args.format, args.output)
    with connect(args) as api:
        totals = api.get(
            run_path(args.project, args.run, "totals"),
            TotalsAnswer,
            {"attempts": args.attempts, "rank": args.rank},
        )
        wrong = silent_rank(api, args) if not totals["keys"] else ""
        if wrong:
            tell(args.command, wrong)
            return 1
        keys = _chosen(totals["keys"], args.key)
        columns = columns_of(keys)
        reading = Reading(api, args, columns)
        with _sink(args.output) as sink:
            FORMATS[form](sink, columns, reading.pages())
        hidden = superseded_note(api, args, args.rank)
    for note in (*_notes(keys, columns, reading.unforeseen), *filter(None, [hidden])):
        tell(args.command, note)
    return 0


def _notes(keys: Answer, columns: list[Column], unforeseen: set[str]) -> Iterator[str]:
    """Yield what the rows do not show."""
    if unforeseen:
        names = ", ".join(sorted(unforeseen))
        yield f"appeared during the export and is left out: {names}; export again to have it"
    for column in columns:
        if column.name != column.key:
            yield f"the key {column.key!r} has the column {column.name!r}"
    kept_out = {
        name: key["nonfinite"]
        for name, key in keys.items()
        if key["series"] is None and key["nonfinite"]
    }
    if kept_out:
        values = ", ".join(f"{number:,} of {name}" for name, number in kept_out.items())
        yield f"reported as NaN or infinite in the whole run, and in no cell: {values}"


class Reading:
    """Reads the iterations once.

    Attributes:
        unforeseen: keys that no column was made for.
    """

    def __init__(self, api: Api, args: argparse.Namespace, columns: list[Column]) -> None:
        self._api, self._args = api, args
        self._known = {column.key for column in columns}
        self.unforeseen: set[str] = set()

    def pages(self) -> Iterator[list[Item]]:
        """Yield pages of iterations; say on a terminal how far it is."""
        args, done = self._args, 0
        query = {
            "key": args.key,
            "from": args.first,
            "to": args.last,
            "rank": args.rank,
            "attempts": args.attempts,
        }
        path = run_path(args.project, args.run, "iterations")
        for page in self._api.each_page(path, IterationsAnswer, query, limit=PAGE):
            items = page["items"]
            for item in items:
                self.unforeseen |= item["keys"].keys() - self._known
            yield items
            done += len(items)
            _progress(done)
        if done >= PAGE:
            _progress(done, end="\n")


def _format(given: str | None, output: Path | None) -> str:
    ending = output.suffix.removeprefix(".").lower() if output is not None else ""
    form = given or ("csv" if output is None else ending)
    if form not in FORMATS:
        raise ConfigurationError(
            f"{output} does not say which format: give --format, one of {', '.join(FORMATS)}"
        )
    if form == "parquet" and output is None:
        raise ConfigurationError("parquet needs a file: give --output FILE")
    return form


def _chosen(keys: Answer, wanted: list[str] | None) -> Answer:
    unknown = [key for key in wanted or () if key not in keys]
    if unknown:
        raise ConfigurationError(
            f"the run has no key {visible(unknown[0])!r}: 'rankfold totals' lists them"
        )
    return {key: keys[key] for key in dict.fromkeys(wanted)} if wanted else keys


@contextmanager
def _sink(output: Path | None) -> Iterator[BinaryIO]:
    """Give where bytes go; a file takes its name once it is whole, and otherwise is gone.

    Raises:
        ConfigurationError: the file cannot be made.
    """
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(os.path.realpath(output))
    regular = target.is_file() or not target.exists()
    part = target.with_name(f".{target.name}.{os.getpid()}.part") if regular else target
    with _signals_raise():
        with _making(output):
            file = part.open("wb")
        try:
            with file:
                yield file
                file.flush()
                if regular:
                    os.fsync(file.fileno())
            if regular:
                with _making(output):
                    part.replace(target)
        finally:
            if regular:
                part.unlink(missing_ok=True)


@contextmanager
def _making(output: Path) -> Iterator[None]:
    """Say of a file that it cannot be made, and why."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{output} cannot be written: {error.strerror}") from error


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Let the signals that end a process unwind it, as Ctrl-C does, so that it can tidy."""
    ending = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is signal.SIG_DFL]
    for number in ending:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def _progress(done: int, end: str = "\r") -> None:
    if sys.stderr.isatty() and not sys.stdout.isatty():
        print(counted(done, "iteration"), end=end, file=sys.stderr, flush=True)
