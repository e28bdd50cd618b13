"""How panels are made: each with a unit, a description, and what it says where there is nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.statetimeline import Panel as StateTimeline
from grafana_foundation_sdk.builders.table import Panel as Table
from grafana_foundation_sdk.builders.timeseries import Panel as Timeseries
from grafana_foundation_sdk.builders.xychart import Panel as XyChart
from grafana_foundation_sdk.builders.xychart import XychartXYSeriesConfigX, XYSeriesConfig
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, units
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.xychart import MatcherConfig, SeriesMapping, XYShowMode

from rankfold_deploy.dashboards.promql import GATES

NOTHING = "no data"

# Below this a difference is drawn as nearly zero; zero itself is drawn, which no logarithm allows.
SMALLEST = 1e-12

GATE_COLOURS = {
    "pass": "green",
    "no_data": "#8e8e8e",
    "incomplete": "yellow",
    "invalid": "orange",
    "fail": "red",
}


Panel = TypeVar("Panel", Stat, StateTimeline, Table, Timeseries, XyChart)


class About(NamedTuple):
    """What every panel says of itself.

    Attributes:
        title: its heading.
        unit: of its values, as Grafana calls it.
        description: what is shown and how to read it.
        nothing: what it says where there is no value.
    """

    title: str
    unit: str
    description: str
    nothing: str = NOTHING


def source() -> common.DataSourceRef:
    """Return the data source that the dashboard's reader chose."""
    return common.DataSourceRef(type_val="prometheus", uid="${datasource}")


def query(expression: str, legend: str = "__auto", name: str = "A") -> Dataquery:
    """Return a query over the dashboard's time."""
    asked = Dataquery().datasource(source()).expr(expression).ref_id(name)
    return asked.legend_format(legend).range()


def column(expression: str, name: str) -> Dataquery:
    """Return a query at the end of the dashboard's time, for the column `Value #<name>`."""
    asked = Dataquery().datasource(source()).expr(expression).ref_id(name)
    return asked.format(PromQueryFormat.TABLE).instant()


def steps(*levels: tuple[float | None, str]) -> build.ThresholdsConfig:
    """Return colours from a value on; the first has no value."""
    return (
        build.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value=value, color=colour) for value, colour in levels])
    )


def plain() -> build.ThresholdsConfig:
    """Return the one colour of values that are neither good nor bad."""
    return steps((None, "text"))


def bad_from_one() -> build.ThresholdsConfig:
    """Return green for zero, red from one on."""
    return steps((None, "green"), (1, "red"))


def gate_names() -> list[model.ValueMapping]:
    """Return the verdicts' names and colours for their numbers."""
    named = {
        str(number): model.ValueMappingResult(text=gate, color=GATE_COLOURS[gate], index=number)
        for gate, number in GATES.items()
    }
    return [model.ValueMap(options=named)]


def states() -> list[model.ValueMapping]:
    """Return the names of the values of `rankfold_run_finished`."""
    named = {"0": "running", "1": "finished"}
    results = {value: model.ValueMappingResult(text=text) for value, text in named.items()}
    return [model.ValueMap(options=results)]


def symlog() -> build_common.ScaleDistributionConfig:
    """Return a scale that is logarithmic and yet shows zero."""
    return (
        build_common.ScaleDistributionConfig()
        .type(common.ScaleDistribution.SYMLOG)
        .log(10)
        .linear_threshold(SMALLEST)
    )


def stat(about: About, *asked: Dataquery, width: int = 3) -> Stat:
    """Return a panel of one value, the last one in the dashboard's time."""
    last = build_common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
    panel = Stat().color_mode(common.BigValueColorMode.VALUE).reduce_options(last)
    return _made(panel.graph_mode(common.BigValueGraphMode.NONE), about, asked, (width, 4))


def graph(about: About, *asked: Dataquery, width: int = 12) -> Timeseries:
    """Return a panel of values over time."""
    panel = (
        Timeseries()
        .color_scheme(_by_name())
        .line_width(1)
        .fill_opacity(5)
        .legend(_legend())
        .tooltip(_tooltip())
    )
    return _made(panel, about, asked, (width, 8))


def over_iterations(about: About, iteration: str, *asked: Dataquery) -> XyChart:
    """Return a panel of values over the iteration that they belong to.

    What Prometheus scraped at one moment is one point: the expression `iteration` says where it
    is drawn. An iteration that was the newest for less than a scrape interval has no point.
    """
    join = model.DataTransformerConfig("joinByField", options={"byField": "Time", "mode": "outer"})
    panel = (
        XyChart()
        .color_scheme(_by_name())
        .show(XYShowMode.POINTS)
        .mapping(SeriesMapping.AUTO)
        .series([XYSeriesConfig().x(XychartXYSeriesConfigX().matcher(_Named("iteration")))])
        .with_transformation(join)
        .override_by_name(
            "iteration",
            [
                model.DynamicConfigValue("unit", units.NoUnit),
                model.DynamicConfigValue("custom.scaleDistribution", {"type": "linear"}),
            ],
        )
        .legend(_legend())
        .tooltip(_tooltip())
    )
    return _made(panel, about, (query(iteration, "iteration", "iteration"), *asked), (12, 8))


def timeline(about: About, *asked: Dataquery, width: int = 12) -> StateTimeline:
    """Return a panel of states over time."""
    return _made(StateTimeline(), about, asked, (width, 8))


def table(about: About, *asked: Dataquery) -> Table:
    """Return a panel of rows; queries fill its columns."""
    return _made(Table(), about, asked, (24, 18))


def _made(panel: Panel, about: About, asked: Sequence[Dataquery], size: tuple[int, int]) -> Panel:
    width, height = size
    panel.title(about.title).description(about.description).unit(about.unit)
    panel.no_value(about.nothing).datasource(source()).thresholds(plain())
    panel.span(width).height(height)
    for one in asked:
        panel.with_target(one)
    return panel


class _Named(Builder[MatcherConfig]):
    """The field of a name; the library has the model of it but no builder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def build(self) -> MatcherConfig:
        """Return the model."""
        return MatcherConfig("byName", self._name)


def _by_name() -> build.FieldColor:
    return build.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME)


def _legend() -> build_common.VizLegendOptions:
    return (
        build_common.VizLegendOptions()
        .show_legend(True)
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
    )


def _tooltip() -> build_common.VizTooltipOptions:
    return (
        build_common.VizTooltipOptions()
        .mode(common.TooltipDisplayMode.MULTI)
        .sort(common.SortOrder.DESCENDING)
    )
