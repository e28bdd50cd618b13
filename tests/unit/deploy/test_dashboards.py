"""The dashboards are what their code builds, and each panel says what it shows."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard

from rankfold_deploy.built import DOCKER, built
from rankfold_deploy.dashboards import DASHBOARDS
from support.grafana import Query, load, panels, queries, variables

UIDS = sorted(DASHBOARDS)
QUERIES = [query for uid in UIDS for query in queries(load(uid))]
UNITS = {value for value in vars(units).values() if isinstance(value, str)}
# Gauges of runs are the same in every replica; these are each aggregator's own.
RUNS_GAUGE = re.compile(
    r"rankfold_(?!build_info|exported_series|queue_depth|partials_|rejected_|requests_|"
    r"request_duration_|store_)\w+"
)


def test_built_files_are_up_to_date() -> None:
    """What is checked in is what the code builds: `make dashboards` writes it."""
    stale = [str(path) for path, text in built().items() if path.read_text() != text]
    assert stale == [], "run `make dashboards`"


def test_no_other_dashboard_lies_beside_them() -> None:
    """A dashboard that is built no more is gone."""
    found = {path.stem for path in (DOCKER / "grafana/dashboards").glob("*.json")}
    assert found == set(UIDS)


@pytest.mark.parametrize("uid", UIDS)
def test_dashboard_is_read_back_by_grafanas_types(uid: str) -> None:
    """The library's own types take the file and write the same."""
    register_default_plugins()
    expected = load(uid)
    again = Dashboard.from_json(expected)
    for link in expected["links"]:
        link["placement"] = "inControlsMenu"  # the library writes this field and does not read it
    assert json.loads(JSONEncoder().encode(again)) == expected
    assert again.uid == uid


@pytest.mark.parametrize("uid", UIDS)
def test_panels_have_ids_of_their_own_and_do_not_overlap(uid: str) -> None:
    """Ids are unique, and no two panels share a cell of the grid of 24 columns."""
    found = load(uid)["panels"]
    ids = [panel["id"] for panel in found]
    assert len(set(ids)) == len(ids)
    for one, other in combinations([panel["gridPos"] for panel in found], 2):
        assert apart(one, other), (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in found)


def apart(one: dict[str, int], other: dict[str, int]) -> bool:
    """Say whether two places on the grid share no cell."""
    return (
        one["x"] + one["w"] <= other["x"]
        or other["x"] + other["w"] <= one["x"]
        or one["y"] + one["h"] <= other["y"]
        or other["y"] + other["h"] <= one["y"]
    )


@pytest.mark.parametrize("uid", UIDS)
def test_panels_say_what_they_show(uid: str) -> None:
    """Each has a title, a description in sentences, a known unit and a word for no data."""
    for panel in panels(load(uid)):
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert defaults["unit"] in UNITS
        assert defaults["noValue"]
        for override in panel["fieldConfig"]["overrides"]:
            chosen = {one["id"]: one["value"] for one in override["properties"]}
            assert chosen.get("unit", "none") in UNITS


@pytest.mark.parametrize("uid", UIDS)
def test_panels_ask_the_data_source_that_was_chosen(uid: str) -> None:
    """Panels, queries and variables name no data source of somebody's own."""
    dashboard = load(uid)
    first, *others = dashboard["templating"]["list"]
    assert (first["type"], first["name"], first["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    found = [one["datasource"] for panel in panels(dashboard) for one in (panel, *panel["targets"])]
    found += [variable["datasource"] for variable in others]
    assert {one["uid"] for one in found} == {"${datasource}"}


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_queries_are_written_for_replicas_and_odd_names(query: Query) -> None:
    """Gauges of runs go through `max by`; variables are escaped, and stand in raw strings."""
    for gauge in RUNS_GAUGE.finditer(query.expression):
        assert "max by (" in query.expression[: gauge.start()], gauge[0]
    bare = re.sub(r"=~`[^`]*`", "", query.expression)
    assert set(re.findall(r"\$\S*?\b\w+", bare)) <= {"$__rate_interval", "$__range"}
    for raw in re.findall(r"`([^`]*)`", query.expression):
        assert "$" not in re.sub(r"\$\{\w+:regex\}", "", raw)


def test_runs_lead_to_the_run() -> None:
    """The link of a row names a dashboard and variables that it has, every character encoded."""
    (link,) = list(links(load("rankfold-runs")))
    address = link.replace("${datasource:queryparam}", "var-datasource=x")
    address = address.replace("${__url_time_range}", "from=0&to=1")
    parts = urlsplit(address)
    uid = parts.path.removeprefix("/d/")
    query = parse_qs(parts.query)
    assert query["var-run"] == ["${__data.fields.run:percentencode}"]
    assert query["var-project"] == ["${__data.fields.project:percentencode}"]
    assert {"run", "project"} <= set(variables(load(uid)))


def links(dashboard: dict[str, Any]) -> Any:
    """Yield the addresses of the links in the panels' fields."""
    for panel in panels(dashboard):
        for override in panel["fieldConfig"]["overrides"]:
            for one in override["properties"]:
                if one["id"] == "links":
                    yield from (link["url"] for link in one["value"])
