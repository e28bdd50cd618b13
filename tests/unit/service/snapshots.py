"""Run snapshots from real ledgers, and the short way to fill those."""

from __future__ import annotations

from rankfold.facts import Facts
from rankfold.ledger import Ledger
from rankfold.partial import PartialColumns
from rankfold.rules import Rule, RuleSet
from rankfold.wire import Commit, Report, ScalarColumns
from rankfold_service.judge import Ages, Judge, RunSnapshot

SERIES = "training/rollout_logprobs"


def new_ledger(project: str = "default", run: str = "r1", rules: RuleSet | None = None) -> Ledger:
    """Return the books of a run that nobody has reported yet."""
    return Ledger(project, run, Facts(rules or RuleSet()))


def compared(
    iteration: int = 0,
    series: str = SERIES,
    *,
    count: int = 0,
    largest: float | None = 0.0,
    sum_: float = 0.0,
    valid: int = 8,
    nonfinite: int = 0,
    sum_sq: float | None = None,
) -> PartialColumns:
    """Return one partial, of microbatch 0."""
    return PartialColumns(
        [series],
        [iteration],
        [0],
        [count],
        [valid],
        [nonfinite],
        [largest],
        [sum_],
        sum_sq=None if sum_sq is None else [sum_sq],
    )


def scalar(
    key: str, value: float, rule: Rule, *, iteration: int = 0, weight: int = 1
) -> ScalarColumns:
    """Return one scalar, of microbatch 0."""
    return ScalarColumns([key], [iteration], [0], [value], [weight], [rule], [False])


def tell(
    ledger: Ledger,
    partials: PartialColumns | None = None,
    scalars: ScalarColumns | None = None,
    *,
    rank: int = 0,
    attempt: int = 0,
    world_size: int | None = None,
    commit: int | None = None,
    now: float = 1000.0,
) -> None:
    """Report to a ledger; `commit` is an iteration of one microbatch that is over."""
    report = Report(
        ledger.run,
        rank,
        ledger.project,
        attempt,
        world_size,
        partials or PartialColumns(),
        scalars or ScalarColumns(),
        [] if commit is None else [Commit(commit, 1)],
    )
    ledger.apply(report, now)


def snapshot_of(ledger: Ledger) -> RunSnapshot:
    """Return a ledger's snapshot for a scrape, taken when its last report arrived."""
    judge = Judge(Ages(), lambda: ledger.last_report)
    return judge.snapshot(ledger, judge.mark(ledger))
