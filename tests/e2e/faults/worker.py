"""A reporter's process: hands over a plan's steps through the real client, until killed or done."""

from __future__ import annotations

import inspect
import logging
import random
import time
from collections.abc import MutableSequence
from dataclasses import dataclass

from rankfold.partial import Partial, Worst
from rankfold_client import Reporter

from .plan import RUN, CommitStep, PartialStep, Plan, ScalarStep, Step

# Where a process says how far it is, in memory that outlives its kill.
HANDED, SAFE, LEFT = range(3)
UNKNOWN = -1

HAS_SPOOL = "spool" in inspect.signature(Reporter).parameters
PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Task:
    """What one reporter process does.

    Attributes:
        plan: what there is to say.
        attempt: which launch it belongs to.
        rank: whose process it is.
        first: the iteration to begin with.
        url: of the aggregator, or of what stands in between.
        spool: the folder of the durable queue, or None to queue in memory.
    """

    plan: Plan
    attempt: int
    rank: int
    first: int
    url: str
    spool: str | None


def work(task: Task, allowed: MutableSequence[int], progress: MutableSequence[int]) -> None:
    """Report iteration after iteration, as far as is allowed, then close.

    Args:
        task: what to do.
        allowed: holds the last iteration that may begin.
        progress: is told how many steps were handed over, the last iteration up to which
            everything is delivered, and what `close` returned.
    """
    logging.disable(logging.WARNING)
    deadline = time.monotonic() + PATIENCE
    pace = random.Random(f"{task.plan.seed}/{task.attempt}/{task.rank}/pace")
    reporter = _reporter(task)
    for iteration in range(task.first, task.plan.iterations):
        while allowed[0] < iteration:
            time.sleep(0.005)
        for step in task.plan.steps(task.attempt, task.rank, iteration):
            hand_over(reporter, step)
            progress[HANDED] += 1
            _linger(reporter, pace)
        if reporter.flush(0.3) == 0:
            progress[SAFE] = iteration
    while reporter.flush(1.0) and time.monotonic() < deadline:
        pass
    progress[LEFT] = reporter.close()


def _reporter(task: Task) -> Reporter:
    spool = {} if task.spool is None else {"spool": task.spool}
    return Reporter(
        RUN,
        url=task.url,
        rank=task.rank,
        world_size=task.plan.world_size,
        attempt=task.attempt,
        iteration=task.first,
        timeout=1.0,
        **spool,  # type: ignore[arg-type]
    )


def _linger(reporter: Reporter, pace: random.Random) -> None:
    """Train a little; now and then let a part of an iteration travel on its own."""
    time.sleep(pace.uniform(0, 0.002))
    if pace.random() < 0.05:
        reporter.flush(0.05)


def hand_over(reporter: Reporter, step: Step) -> None:
    """Give one step to the client."""
    match step:
        case PartialStep():
            reporter.partial(
                step.series, _partial(step), iteration=step.iteration, microbatch=step.microbatch
            )
        case ScalarStep():
            reporter.scalar(
                step.key,
                float(step.value),
                weight=step.weight,
                rule=step.rule,
                iteration=step.iteration,
                microbatch=step.microbatch,
                global_=step.is_global,
            )
        case CommitStep():
            reporter.end_iteration(step.microbatches)


def _partial(step: PartialStep) -> Partial:
    worst = None
    if step.worst is not None:
        row, column, a, b, ulp = step.worst
        worst = Worst((row, column), float(a), b, ulp)
    return Partial(
        valid=step.valid,
        count=step.count,
        max=step.max,
        sum=step.sum,
        nonfinite=step.nonfinite,
        sum_sq=step.sum_sq,
        ulp_max=step.ulp_max,
        worst=worst,
    )
