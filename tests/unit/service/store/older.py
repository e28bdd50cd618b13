"""What the store of schema 1 beside this file was given, by the version that wrote it.

Its first part was folded into the tables, the rest was still in the journal when it was killed.
"""

from __future__ import annotations

import math
from pathlib import Path

from rankfold.partial import Worst
from rankfold.wire import Report
from support.reports import partial, report

SCHEMA_1 = Path(__file__).with_name("schema_1.sqlite")
KEEP = 2

_WORST = Worst(position=(1, 2), a=-1.5, b=math.nan, ulp=0, token_id=7, sample="s")


def _iteration(rank: int, iteration: int, attempt: int = 0) -> Report:
    """Return a rank's whole iteration; of the third, the first microbatch comes last."""
    differs = {
        "count": 2,
        "valid": 8,
        "nonfinite": 1,
        "max": 0.1 * (iteration + 1),
        "sum": 0.1 * (iteration + 1),
        "sum_sq": 0.01,
        "ulp_max": 2**40,
        "total": 9,
    }
    rows = [
        partial(iteration=iteration, microbatch=0),
        partial(iteration=iteration, microbatch=1, **differs),
        partial(iteration=iteration, microbatch=2, valid=0, max=None),
    ]
    rows[1]["worst"] = _WORST
    return report(
        rank=rank,
        attempt=attempt,
        world_size=2,
        meta={"framework": "test"},
        partials=rows[::-1] if iteration == 2 else rows,
        scalars=[
            {"key": "loss", "iteration": iteration, "value": 0.3, "weight": 3, "rule": "mean"},
            {"key": "lr", "iteration": iteration, "value": "Infinity", "rule": "last"},
            {"key": "all", "iteration": iteration, "value": 2, "rule": "sum", "global": True},
        ],
        commits=[{"iteration": iteration, "microbatches": 3}],
    )


def reports() -> tuple[list[Report], list[Report]]:
    """Return what the tables and what the journal of the older store hold."""
    whole = [_iteration(rank, iteration) for iteration in range(6) for rank in (0, 1)]
    again = report(partials=[partial(iteration=5, valid=9)], dropped=3)  # a conflict
    apart = report(rank=1, partials=[partial(iteration=9, microbatch=4)])
    other = report(run="o\u00e9 2", partials=[partial(series="t")])
    restart = [_iteration(rank, 4, attempt=1) for rank in (0, 1)]
    return [*whole, again, apart, other], [*restart, report(partials=[partial(iteration=7)])]
