"""What the dashboards have in common: data source, variables, links, ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from rankfold_deploy.dashboards.panels import source

TAG = "rankfold"

Row = tuple[str, Sequence[Builder[model.Panel]]]


def framed(
    uid: str, title: str, description: str, variables: Iterable[Builder[model.VariableModel]]
) -> build.Dashboard:
    """Return a dashboard without panels."""
    chosen_source = build.DatasourceVariable("datasource").label("Data source").type("prometheus")
    dashboard = (
        build.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .time("now-6h", "now")
        .refresh("30s")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .with_variable(chosen_source)
        .link(
            build.DashboardLink("Rankfold")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .keep_time(True)
            .include_vars(True)
            .placement("")  # in the header; the library's default hides it in a menu
        )
    )
    for variable in variables:
        dashboard.with_variable(variable)
    return dashboard


def filled(dashboard: build.Dashboard, rows: Iterable[Row]) -> build.Dashboard:
    """Return the dashboard with rows of panels, numbered in order; '' is no row's title."""
    number = 0
    for title, panels in rows:
        if title:
            number += 1
            dashboard.with_row(build.Row(title).id(number))
        for panel in panels:
            number += 1
            dashboard.with_panel(_Numbered(panel, number))
    return dashboard


def chosen(name: str, metric: str, where: str = "") -> build.QueryVariable:
    """Return a variable over the values of the label `name`."""
    query = f"label_values({metric}{{{where}}}, {name})"
    return (
        build.QueryVariable(name)
        .label(name.capitalize())
        .datasource(source())
        .query({"query": query, "refId": f"variable-{name}", "qryType": 1})
        .definition(query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
        .allow_custom_value(False)
    )


def several(variable: build.QueryVariable) -> build.QueryVariable:
    """Return the variable with several values, all of them at first."""
    every = model.VariableOption(selected=True, text=["All"], value=["$__all"])
    return variable.multi(True).include_all(True).all_value(".*").current(every)


class _Numbered(Builder[model.Panel]):
    """A panel with its id, which links to it name."""

    def __init__(self, panel: Builder[model.Panel], number: int) -> None:
        self._panel = panel
        self._number = number

    def build(self) -> model.Panel:
        """Return the model."""
        panel = self._panel.build()
        panel.id_val = self._number
        return panel
