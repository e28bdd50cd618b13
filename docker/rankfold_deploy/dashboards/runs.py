"""The dashboard *Runs*: a table of every run and its verdict, which leads to the run's own."""

from __future__ import annotations

from typing import NamedTuple

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from rankfold_deploy.dashboards.frame import chosen, filled, framed, several
from rankfold_deploy.dashboards.panels import (
    GATE_COLOURS,
    About,
    bad_from_one,
    column,
    gate_names,
    query,
    stat,
    states,
    table,
)
from rankfold_deploy.dashboards.promql import GATES, LAST, PROJECTS, known, verdict


def _of_run(name: str) -> str:
    return known(f"rankfold_{name}", PROJECTS)


def _of_series(name: str) -> str:
    return known(f"rankfold_{name}_positions", PROJECTS, "series")


# Grafana writes a name into an address only where it is told to encode every character.
RUN_LINK = (
    "/d/rankfold-run?${datasource:queryparam}&var-project=${__data.fields.project:percentencode}"
    "&var-run=${__data.fields.run:percentencode}&${__url_time_range}"
)

GATE = f"{verdict(PROJECTS)} or {verdict(PROJECTS, LAST)}"


class Column(NamedTuple):
    """A column of the table of runs."""

    query: str
    heading: str
    unit: str
    expression: str
    red: bool = False  # where it is not 0


COLUMNS = (
    Column("gate", "Gate", units.NoUnit, GATE),
    Column("mismatches", "Mismatches", units.LocaleFormat, _of_series("mismatch"), red=True),
    Column("nonfinite", "Non-finite", units.LocaleFormat, _of_series("nonfinite"), red=True),
    Column("conflicts", "Conflicts", units.LocaleFormat, _of_run("conflicts"), red=True),
    Column("compared", "Compared", units.LocaleFormat, _of_series("valid")),
    Column("complete", "Complete to", units.NoUnit, _of_run("run_complete_iteration")),
    Column("incomplete", "Incomplete", units.NoUnit, _of_run("run_incomplete_iterations")),
    Column("reporting", "Ranks", units.NoUnit, _of_run("run_ranks_reporting")),
    Column("expected", "Ranks expected", units.NoUnit, _of_run("run_ranks_expected")),
    Column(
        "report",
        "Last report",
        units.DateTimeFromNow,
        f"1000 * ({_of_run('run_last_report_timestamp_seconds')})",
    ),
    Column("finished", "State", units.NoUnit, _of_run("run_finished")),
)


def runs() -> build.Dashboard:
    """Return the dashboard *Runs*."""
    dashboard = framed(
        "rankfold-runs",
        "Rankfold / Runs",
        "Every run that was exported in the time shown, its verdict and why.",
        [several(chosen("project", "rankfold_run_finished"))],
    )
    return filled(dashboard, [("", [_verdicts(), _table()])])


def _verdicts() -> Builder[model.Panel]:
    counts = [
        query(f"sum({verdict(PROJECTS)} == bool {number})", gate, gate)
        for gate, number in GATES.items()
    ]
    about = About(
        "Live verdicts",
        units.NoUnit,
        "How many of the runs that are exported at the end of the time shown have which verdict. "
        "A verdict is live: iterations in progress are left out.",
    )
    panel = stat(about, *counts, width=24)
    for gate, colour in GATE_COLOURS.items():
        fixed = {"mode": "fixed", "fixedColor": colour}
        panel.override_by_name(gate, [model.DynamicConfigValue("color", fixed)])
    return panel


def _table() -> Builder[model.Panel]:
    about = About(
        "Runs",
        units.NoUnit,
        "One row per run that was exported in the time shown: its live verdict, what was counted "
        "over all attempts, the newest complete iteration, iterations that lack something (those "
        "in progress too), ranks, and when the last report came. A run's name leads to it.",
        "no run was exported in this time",
    )
    panel = table(about, *(column(c.expression, c.query) for c in COLUMNS))
    panel.with_transformation(model.DataTransformerConfig("merge", options={}))
    panel.with_transformation(model.DataTransformerConfig("organize", options=_organised()))
    for each in COLUMNS:
        panel.override_by_name(each.heading, _looks(each))
    link = {"title": "Show the run ${__data.fields.run}", "url": RUN_LINK}
    return panel.override_by_name("run", [model.DynamicConfigValue("links", [link])])


def _organised() -> dict[str, object]:
    names = [f"Value #{each.query}" for each in COLUMNS]
    order = ["project", "run", *names]
    return {
        "excludeByName": {"Time": True},
        "indexByName": {name: index for index, name in enumerate(order)},
        "renameByName": {name: each.heading for name, each in zip(names, COLUMNS, strict=True)},
    }


def _looks(each: Column) -> list[model.DynamicConfigValue]:
    looks = [model.DynamicConfigValue("unit", each.unit)]
    if each.red:
        looks.append(model.DynamicConfigValue("thresholds", bad_from_one().build()))
    if each.query == "gate":
        looks.append(model.DynamicConfigValue("mappings", gate_names()))
    if each.query == "finished":
        looks.append(model.DynamicConfigValue("mappings", states()))
    if each.red or each.query == "gate":
        coloured = {"type": "color-background", "mode": "basic"}
        looks.append(model.DynamicConfigValue("custom.cellOptions", coloured))
    return looks
