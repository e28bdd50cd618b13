"""`rankfold watch`: follows a run live, an iteration a line, until it is over."""

from __future__ import annotations

import argparse
import json
import select
import sys
from collections.abc import Iterable, Iterator

from rankfold.answers import IterationsAnswer, RunAnswer
from rankfold.errors import NotFound, RankfoldError, Unreachable
from rankfold_service.cli import options
from rankfold_service.cli.api import Answer, Api, connect, run_path
from rankfold_service.cli.event_text import event_text, keys_of
from rankfold_service.cli.follow import SHOWN_BEFORE, Event, Follower, Window
from rankfold_service.cli.gate import (
    EXIT_CODES,
    Question,
    add_policy,
    add_series,
    wait_for_verdict,
)
from rankfold_service.cli.polling import POLL_SECONDS, polled
from rankfold_service.cli.text import Screen, tell

PAGE = 200  # iterations; the aggregator reads one page in one go
MOST_KEYS = 100  # that a query can name
GRACE_SECONDS = 10.0
LEAST_INTERVAL = 0.1

DESCRIPTION = f"""\
Follows a run: prints each iteration once it is complete, in order, with the mismatches of its
series, and the live verdict whenever that becomes another one. The last {SHOWN_BEFORE} iterations
that the run has already come first. Once it is finished, or has been silent for so long that it
is stale, the verdict is printed as 'rankfold gate' does, and decides the exit code.
"""

EPILOG = f"""\
An iteration that is not complete although a rank is two or more beyond it is printed as incomplete,
and once more when it is complete after all. When a restart begins again at an earlier iteration, a
line says so, and what it reports is printed anew.
Where a terminal is too narrow, a line leaves out means and largest differences, and only counts
the series without a mismatch, as clean.

The verdict is on the whole run, whatever --from says. When a run is finished and incomplete, watch
waits {GRACE_SECONDS:g} s for reports that are still on their way.

A run that is not known yet is waited for, and so is, once it has answered, an aggregator that does
not answer any more; lines on standard error say so.

With --json each line is an object with the member "event": run, iteration, gate (the live verdict)
and at the end verdict, each with the API's answer on it; and attempt where the run was begun again,
with the attempt's number, the first_iteration that is printed anew, and whether the run was deleted
and is begun anew.

examples:
  rankfold watch my-run
  rankfold watch my-run --from 0 --key actor/pg_loss/mean
  rankfold watch my-run --json | jq 'select(.event == "gate")'

exit codes:
  0  pass
  1  fail or invalid
  2  wrong usage, a refused request, or output that cannot be written
  3  incomplete or no data
  4  no aggregator answers at the start
  130 after Ctrl-C
"""


def add_parser(subparsers: options.Subparsers) -> None:
    """Add `watch` to the command line."""
    parser = options.new_parser(subparsers, "watch", run, DESCRIPTION, EPILOG)
    options.add_run(parser)
    shown = parser.add_argument_group("what is shown")
    add_series(shown)
    shown.add_argument(
        "--key",
        type=options.series_or_key,
        action="append",
        default=[],
        help="this key of each iteration too; may be given several times",
    )
    shown.add_argument(
        "--from",
        type=options.index,
        dest="start",
        metavar="ITERATION",
        help=f"the first iteration; 0 for all (default: the last {SHOWN_BEFORE} of now)",
    )
    add_policy(parser.add_argument_group("how it is judged"))
    parser.add_argument(
        "--interval",
        type=_interval,
        default=POLL_SECONDS,
        metavar="SECONDS",
        help="look so often (default: %(default)g)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object a line, for programs"
    )
    # The verdict is on the whole run.
    parser.set_defaults(first=None, last=None, attempts=None, require_finished=None, live=None)


def _interval(text: str) -> float:
    seconds = options.amount(text)
    if seconds < LEAST_INTERVAL:
        raise argparse.ArgumentTypeError(f"must be at least {LEAST_INTERVAL}, not {text!r}")
    return seconds


def run(args: argparse.Namespace) -> int:
    """Print what happens until the run is over, and return the verdict's exit code."""
    trouble: RankfoldError | None = None
    reached = False
    with connect(args) as api:
        watch = Watch(api, args)
        for answer, _ in polled(watch.look, args.interval):
            if isinstance(answer, dict):
                return EXIT_CODES[answer["gate"]]
            if isinstance(answer, Unreachable) and not reached:
                raise answer
            reached = True
            _tell(answer, trouble, api.address)
            trouble = answer
    raise AssertionError("polling ends with an answer only")


def _tell(now: RankfoldError | None, before: RankfoldError | None, address: str) -> None:
    """Say on standard error what has begun to be waited for, or what is over."""
    if type(now) is type(before):
        return
    if now is not None:
        tell("watch", f"waiting: {now}")
    elif not isinstance(before, NotFound):
        tell("watch", f"{address} answers again")


class Watch:
    """Looks at a run again and again, and prints what is new."""

    def __init__(self, api: Api, args: argparse.Namespace) -> None:
        self._api, self._args = api, args
        self._follower = Follower(args.start)
        self._series: list[str] = args.series or []
        self._strict = Question(api, args, whole=True)
        self._live = Question(api, argparse.Namespace(**{**vars(args), "live": "true"}))

    def look(self) -> Answer | None:
        """Print what is new; return the verdict once the run is over.

        Raises:
            RankfoldError: not all could be read; the next look goes on after what was printed.
            BrokenPipeError: nobody reads what is printed.
        """
        _check_reader()
        args = self._args
        now = self._api.get(run_path(args.project, args.run), RunAnswer)
        gate = self._live.ask()
        self._print(self._follower.run(now))
        over = gate["state"] != "running"
        if over:
            gate = wait_for_verdict(self._strict, GRACE_SECONDS)
            if gate["state"] == "running":  # a restart, meanwhile
                return None
        self._series = args.series or list(gate["series"])
        self._iterations(gate)
        if over:
            self._print([Event("verdict", gate)])
            return gate
        self._print(self._follower.gate(gate))
        return None

    def _iterations(self, gate: Answer) -> None:
        follower = self._follower
        for window, tell_of in (
            (follower.late_window(gate), follower.late),
            (follower.window(gate), follower.iterations),
        ):
            for items in self._read(window) if window else ():
                self._print(tell_of(items))

    def _read(self, window: Window) -> Iterator[list[Answer]]:
        path = run_path(self._args.project, self._args.run, "iterations")
        query = {"from": window.first, "to": window.last, "key": self._keys()}
        for page in self._api.each_page(path, IterationsAnswer, query, limit=PAGE):
            yield page["items"]

    def _keys(self) -> list[str] | None:
        """Return the keys to read; None for all of them."""
        if self._args.json and not (self._args.series or self._args.key):
            return None
        keys = [*keys_of(self._series), *self._args.key]
        return keys if 0 < len(keys) <= MOST_KEYS else None

    def _print(self, events: Iterable[Event]) -> None:
        screen = Screen.of(sys.stdout)  # now: a window may have been drawn wider
        for event in events:
            if self._args.json:
                line = json.dumps({"event": event.kind, **event.body}, allow_nan=False)
            else:
                line = event_text(event, self._series, self._args.key, screen)
            print(line)
        sys.stdout.flush()


def _check_reader() -> None:
    """Notice that nobody reads any more while there is nothing to print, as of `head`."""
    poller = select.poll()
    poller.register(sys.stdout.fileno(), 0)
    if any(events & select.POLLERR for _, events in poller.poll(0)):
        raise BrokenPipeError
