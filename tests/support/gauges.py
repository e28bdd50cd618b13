"""The gauges of runs by way of Prometheus' client library: what our own lines are held against."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rankfold_service.gauges import FAMILIES, plan, shape
from rankfold_service.judge import RunSnapshot
from rankfold_service.lines import Lines, Templates


class Gauges(Collector):
    """Collects every family of some runs."""

    def __init__(self, *runs: RunSnapshot) -> None:
        self._runs = [(run, plan(shape(run))) for run in runs]

    def collect(self) -> Iterator[Metric]:
        """Yield every family, always all."""
        for family in FAMILIES:
            own = [family.label] if family.label else []
            metric = GaugeMetricFamily(family.name, family.help, labels=["project", "run", *own])
            for run, planned in self._runs:
                labels = [run.project, run.run]
                for at, read in family.gauges(planned):
                    if (value := read(run)) is not None:
                        metric.add_metric([*labels, at] if own else labels, value)
            yield metric


def lines_of(run: RunSnapshot) -> Lines:
    """Return the lines of one run."""
    return Templates().of(run).fill(run)
