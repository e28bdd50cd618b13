"""`rankfold gate`: the verdict on a run, now or when it is final, as an exit code."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from rankfold.answers import GateAnswer
from rankfold.errors import RankfoldError
from rankfold_service.cli import options
from rankfold_service.cli.api import Answer, Api, Query, connect, run_path
from rankfold_service.cli.polling import POLL_SECONDS, polled
from rankfold_service.cli.text import Screen, tell
from rankfold_service.cli.verdict import verdict_text

NOTHING_YET = 3
EXIT_CODES = {
    "pass": 0,
    "fail": 1,
    "invalid": 1,
    "incomplete": NOTHING_YET,
    "no_data": NOTHING_YET,
}

DESCRIPTION = """\
Prints the verdict on a run and the reasons for it:

  pass        every expected position was compared and none differs
  fail        a mismatch count, or a threshold given here, is exceeded
  invalid     the same identity was reported with other content
  incomplete  an expected rank, iteration or microbatch is missing
  no_data     nothing was compared
"""

EPILOG = """\
A threshold for |a - b| does not replace the count: to let positions differ by up to X, give
--max-mismatch-count too. Nats are the unit of log-probs.

With --wait the verdict is asked for until it is final: at once where it is fail or invalid; pass
when the run is finished or stale; incomplete and no_data when it is stale. A finished run that is
incomplete is waited for, since reports may still be on their way, and so are an aggregator that
does not answer and a run that is not known yet. When the time is up, the verdict of then decides,
and a line on standard error says that it is not final: a run that goes on may pass so far. With
--require-finished it is incomplete until it is finished.

examples:
  rankfold gate my-run
  rankfold gate my-run --wait 600 --require-finished
  rankfold gate my-run --series training/rollout_logprobs --from 10
  rankfold gate my-run --max-mismatch-count 1000 --max-diff-max 1e-6

exit codes:
  0  pass
  1  fail or invalid
  2  wrong usage, a refused request, or output that cannot be written
  3  incomplete or no data, or no such run
  4  no aggregator answers, or it cannot answer now
"""


def add_parser(subparsers: options.Subparsers) -> None:
    """Add `gate` to the command line."""
    parser = options.new_parser(subparsers, "gate", run, DESCRIPTION, EPILOG)
    options.add_run(parser)
    selection = parser.add_argument_group("what is judged")
    add_series(selection)
    options.add_range(selection)
    options.add_attempts(selection, "mismatches of all, coverage of the effective")
    policy = parser.add_argument_group("how it is judged")
    add_policy(policy)
    _add_flag(policy, "--require-finished", "incomplete until the run is marked finished")
    _add_flag(policy, "--live", "leave iterations in progress out")
    parser.add_argument(
        "--wait",
        type=options.amount,
        default=0.0,
        metavar="SECONDS",
        help="ask until the verdict is final, for at most so long (default: 0, ask once)",
    )
    options.add_json(parser)


def add_series(group: argparse._ActionsContainer) -> None:
    """Add which series are looked at."""
    group.add_argument(
        "--series",
        type=options.series_or_key,
        action="append",
        help="only this series; may be given several times (default: all)",
    )


def add_policy(group: argparse._ActionsContainer) -> None:
    """Add what is tolerated of a run."""
    add_thresholds(group)
    _add_flag(group, "--allow-absent", "an iteration that no rank reported a series for is no gap")


def add_thresholds(group: argparse._ActionsContainer) -> None:
    """Add how much may differ."""
    group.add_argument(
        "--max-mismatch-count",
        type=options.count,
        metavar="N",
        help="fail where a series has more positions that differ (default: 0)",
    )
    group.add_argument(
        "--max-diff-max",
        type=options.amount,
        metavar="X",
        help="fail where a series has a larger |a - b|, in nats, or one that is not finite",
    )
    group.add_argument(
        "--max-diff-mean",
        type=options.amount,
        metavar="X",
        help="fail where a series has a larger mean |a - b|, or one that is not finite",
    )


def _add_flag(group: argparse._ActionsContainer, name: str, meaning: str) -> None:
    group.add_argument(name, action="store_const", const="true", help=meaning)


def run(args: argparse.Namespace) -> int:
    """Print the verdict and return its exit code."""
    options.check_range(args.first, args.last)
    with connect(args) as api:
        question = Question(api, args)
        answer = wait_for_verdict(question, args.wait)
        unknown = _unknown_series(api, args, answer)
    if args.json:
        options.print_json(answer)
    else:
        print(verdict_text(answer, Screen.of(sys.stdout)))
    sys.stdout.flush()  # what is said of the verdict comes after it
    if unknown:
        tell(args.command, unknown)
    if args.wait and not question.final(answer):
        tell(args.command, _not_final(answer, args.wait))
    return EXIT_CODES[answer["gate"]]


def _unknown_series(api: Api, args: argparse.Namespace, answer: Answer) -> str:
    """Return which of the series asked for the run has never had, and which it has."""
    if not args.series or EXIT_CODES[answer["gate"]] != NOTHING_YET:
        return ""
    path = run_path(args.project, args.run, "gate")
    known = api.get(path, GateAnswer, {"attempts": "all"})["series"]
    unknown = [name for name in args.series if name not in known]
    if not unknown or not known:
        return ""
    return f"the run has no series {', '.join(unknown)}; it has: {', '.join(known)}"


def _not_final(answer: Answer, seconds: float) -> str:
    """Return that the time was up before the verdict was final, and what to do about it."""
    told = f"not final after {seconds:g} s: {_waiting_for(answer)}"
    if answer["state"] == "finished":
        return f"{told}; what is missing may never come"
    told += "; wait longer"
    if answer["gate"] == "pass":
        told += ", or give --require-finished"
    return told


@dataclass(frozen=True)
class Question:
    """What the options ask of which aggregator.

    Attributes:
        api: the aggregator.
        args: the options.
        whole: no verdict on a finished run is final while something is missing, a failure neither.
    """

    api: Api
    args: argparse.Namespace
    whole: bool = False

    def ask(self) -> Answer:
        """Return the verdict of now."""
        path = run_path(self.args.project, self.args.run, "gate")
        return self.api.get(path, GateAnswer, query_of(self.args))

    def final(self, answer: Answer) -> bool:
        """Whether waiting cannot change the verdict, or should not."""
        if self.whole and answer["state"] == "finished" and _lacks_something(answer):
            return False
        match answer["gate"], answer["state"]:
            case ("invalid", _) | (_, "stale") | ("pass", "finished"):
                return True
            case ("fail", state):
                return state == "finished" or not self._may_recover(answer)
            case _:
                return False

    def _may_recover(self, answer: Answer) -> bool:
        """Whether only a mean is too large, which more positions can bring down."""
        if self.args.max_diff_mean is None:
            return False
        most, largest = self.args.max_mismatch_count or 0, self.args.max_diff_max
        return not any(
            series["mismatch_count"] > most
            or series["nonfinite_count"]
            or (largest is not None and (series["diff_max"] or 0) > largest)
            for series in answer["series"].values()
        )


def _lacks_something(answer: Answer) -> bool:
    iterations = answer["iterations"]
    counts = (iterations["incomplete_count"], iterations["absent_count"])
    return any(counts) or bool(answer["ranks"]["missing"])


def query_of(args: argparse.Namespace) -> Query:
    """Return the options as the API's query."""
    return {
        "series": args.series,
        "from": args.first,
        "to": args.last,
        "attempts": args.attempts,
        "max_mismatch_count": args.max_mismatch_count,
        "max_diff_max": args.max_diff_max,
        "max_diff_mean": args.max_diff_mean,
        "require_finished": args.require_finished,
        "allow_absent": args.allow_absent,
        "live": args.live,
    }


def wait_for_verdict(
    question: Question,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer:
    """Return the verdict once it is final, or the last one when the time is up.

    Raises:
        RankfoldError: there is no verdict to return; the last reason why.
    """
    said = ""
    for answer, last in polled(question.ask, POLL_SECONDS, seconds, clock, sleep):
        if last or (isinstance(answer, dict) and question.final(answer)):
            break
        said = _say(question.args.command, _waiting_for(answer), said)
    if isinstance(answer, RankfoldError):
        raise answer
    return answer


def _waiting_for(answer: Answer | RankfoldError) -> str:
    if isinstance(answer, RankfoldError):
        return str(answer)
    return f"the run is {answer['state']}, the gate {answer['gate']}"


def _say(command: str, what: str, said: str) -> str:
    """Tell what is waited for where that has changed; standard output is for the verdict."""
    if what != said:
        tell(command, f"waiting: {what}")
    return what
