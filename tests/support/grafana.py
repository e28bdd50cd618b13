"""What Grafana does with a dashboard before it asks Prometheus: variables, intervals, requests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

DASHBOARDS = Path(__file__).parents[2] / "docker/grafana/dashboards"

ALL = "$__all"
Values = Mapping[str, str | list[str]]

_VARIABLE = re.compile(r"\$\{(\w+):regex\}")
_LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")
_SPECIAL = re.compile(r"[\\^$*+?.()|\[\]{}/]")


class Time(NamedTuple):
    """What a dashboard shows: from and to in seconds of the epoch, and the steps in seconds."""

    start: float
    end: float
    step: int = 1
    scrape_interval: int = 1


class Query(NamedTuple):
    """A query of a panel."""

    dashboard: str
    panel: str
    name: str
    expression: str
    instant: bool

    def __str__(self) -> str:
        """Return what a failing test names."""
        return f"{self.dashboard} / {self.panel} / {self.name}"


def load(uid: str) -> dict[str, Any]:
    """Return a dashboard as it is checked in."""
    dashboard: dict[str, Any] = json.loads((DASHBOARDS / f"{uid}.json").read_text())
    return dashboard


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the panels of a dashboard, its rows left out."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard: Mapping[str, Any]) -> Iterator[Query]:
    """Yield every query of every panel."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            instant = target["instant"]
            where = (dashboard["uid"], panel["title"], target["refId"])
            yield Query(*where, target["expr"], instant)


def variables(dashboard: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the selector and the label of each variable that Prometheus is asked for."""
    asked = {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            match = _LABEL_VALUES.fullmatch(variable["query"]["query"])
            assert match is not None, variable["query"]
            asked[variable["name"]] = (match[1], match[2])
    return asked


def substituted(text: str, values: Values, time: Time) -> str:
    """Return a query with its variables, as Grafana sends it."""
    rate = max(time.step + time.scrape_interval, 4 * time.scrape_interval)
    text = text.replace("$__rate_interval", f"{rate}s")
    text = text.replace("$__range", f"{round(time.end - time.start)}s")
    return _VARIABLE.sub(lambda match: _escaped(values[match[1]]), text)


def _escaped(value: str | list[str]) -> str:
    """Return what `:regex` makes of a variable's value; `.*` is what All stands for here."""
    if isinstance(value, str):
        return _SPECIAL.sub(r"\\\g<0>", value)
    if value == [ALL]:
        return ".*"
    escaped = [_escaped(one) for one in value]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"
