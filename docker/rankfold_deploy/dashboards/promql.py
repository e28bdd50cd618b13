"""The pieces of PromQL that the dashboards share.

Every gauge of a run is the same in every replica of the aggregator, so it is read through
`max by (...)`: two replicas show what one shows. Names are people's own, so they are compared
by regular expression, escaped by Grafana, in PromQL's raw strings: in quoted ones the escape
itself would be a syntax error. Only a name with a backtick cannot be written so.
"""

from __future__ import annotations

from collections.abc import Mapping

# Worst first in the contract's order; a number, so that replicas that differ for a moment fold.
GATES: Mapping[str, int] = {"fail": 4, "invalid": 3, "incomplete": 2, "no_data": 1, "pass": 0}

PROJECTS = "project=~`${project:regex}`"
RUN = f"{PROJECTS}, run=~`${{run:regex}}`"
SERIES = f"{RUN}, series=~`${{series:regex}}`"
INSTANCES = "job=~`${job:regex}`, instance=~`${instance:regex}`"

# What the names of a series' own keys end in; every other key is a scalar.
_SUFFIXES = "mismatch_count|nonfinite_count|valid_count|diff_max|diff_mean|diff_std|ulp_max"
SCALARS = f"{RUN}, key!~`.*_({_SUFFIXES})`"


def once(metric: str, where: str, *by: str) -> str:
    """Return a gauge of a run, once however many replicas export it."""
    return f"max by ({', '.join(by)}) ({metric}{{{where}}})"


def key_of_series(suffix: str) -> str:
    """Return the matchers of the chosen series' key that ends in `suffix`."""
    return f"{RUN}, key=~`(${{series:regex}})_{suffix}`"


def verdict(where: str, read: str = "{}") -> str:
    """Return the live verdict of each run as a number of `GATES`.

    Args:
        where: the matchers of the runs.
        read: what is read of each selector `{}`: it now, or something of its past.
    """
    each = (
        f"{number} * {read.format(f'rankfold_gate{{{where}, status=`{gate}`}}')}"
        for gate, number in GATES.items()
    )
    return f"max by (project, run) ({' or '.join(each)})"


LAST = "last_over_time({}[$__range])"
"""Of a selector, what it was last in the dashboard's time: of runs that have left too."""


def known(metric: str, where: str, *by: str) -> str:
    """Return a gauge of each run that is exported now, and of those that have left its last.

    What an aggregator exported that has been replaced since must not outlive it, so the present
    goes first.

    Args:
        metric: the gauge.
        where: the matchers of the runs.
        by: labels beside project and run, over which it is added up.
    """
    labels = ("project", "run", *by)
    past = LAST.format(f"{metric}{{{where}}}")
    each = f"{once(metric, where, *labels)} or max by ({', '.join(labels)}) ({past})"
    return f"sum by (project, run) ({each})" if by else each


def per_second(counter: str, where: str, *by: str) -> str:
    """Return a counter's rate, added up over instances: each counts its own."""
    return f"sum by ({', '.join(by)}) (rate({counter}{{{where}}}[$__rate_interval]))"


def quantile(share: float, histogram: str, where: str, *by: str) -> str:
    """Return a quantile of a histogram over all instances."""
    return f"histogram_quantile({share}, {per_second(f'{histogram}_bucket', where, *by, 'le')})"
