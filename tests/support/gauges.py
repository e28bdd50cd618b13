"""The gauges of runs by way of Prometheus' client library: what our own lines are held against."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rankfold_service.gauges import FAMILIES, figures
from rankfold_service.judge import RunSnapshot


class Gauges(Collector):
    """Collects every family of some runs."""

    def __init__(self, *runs: RunSnapshot) -> None:
        self._figures = [figures(run) for run in runs]

    def collect(self) -> Iterator[Metric]:
        """Yield every family, always all."""
        for family in FAMILIES:
            own = [family.label] if family.label else []
            metric = GaugeMetricFamily(family.name, family.help, labels=["project", "run", *own])
            for read in self._figures:
                run = [read.run.project, read.run.run]
                for at, value in family.read(read):
                    if value is not None:
                        metric.add_metric([*run, at] if own else run, value)
            yield metric
