"""Every case from a public bug report, over real HTTP against a real server, on both stores."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from support.server import Server

CASES = Path(__file__).parents[1] / "cases"
FOLDS = json.loads((CASES / "folds.json").read_text())
REQUESTS = json.loads((CASES / "requests.json").read_text())


def columnar(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return rows as one object of arrays; a member that some rows lack is null there."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    defaults = {"nonfinite": 0, "weight": 1, "global": False}
    return {name: [row.get(name, defaults.get(name)) for row in rows] for name in names}


@pytest.mark.parametrize("form", ["rows", "columns"])
@pytest.mark.parametrize("case", FOLDS, ids=lambda case: case["name"])
def test_fold_case_gives_the_right_totals_and_verdict(
    server: Server, run: str, case: dict[str, Any], form: str
) -> None:
    """Totals and gate are right whichever form the lists are sent in."""
    for body in case["reports"]:
        sent = {**body, "run": run}
        if form == "columns":
            lists = ("partials", "scalars", "commits")
            sent |= {name: columnar(sent[name]) for name in lists if sent.get(name)}
        assert server.report(**sent).status_code == 200
    keys = server.get(run, "totals", "cases")["keys"]
    assert {name: key["value"] for name, key in keys.items()} == case["expect"]["keys"]
    if "gate" in case["expect"]:
        assert server.get(run, "gate", "cases")["gate"] == case["expect"]["gate"]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("case", REQUESTS, ids=lambda case: case["name"])
def test_request_case_gets_its_status_and_harms_nobody(
    server: Server, case: dict[str, Any], packed: bool
) -> None:
    """Each refusal is a problem document of the stated status, and the next scrape is 200."""
    body = case["body"].encode()
    headers = {"content-type": case["content_type"]}
    if packed:
        body = gzip.compress(body)
        headers["content-encoding"] = "gzip"
    answer = server.client.post("/api/v1/partials", content=body, headers=headers)
    assert answer.status_code == case["status"], answer.text
    if case["status"] != 200:
        problem = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["status"] == case["status"]
        assert problem["retryable"] is False
        assert {"type", "title", "detail", "code"} <= problem.keys()
        if case["status"] == 422:
            assert all(e["pointer"].startswith("/") for e in problem["errors"])
    for accept in ("text/plain", "application/openmetrics-text"):
        assert server.client.get("/metrics", headers={"accept": accept}).status_code == 200


def test_refused_request_applies_nothing_of_itself(server: Server, run: str) -> None:
    """A good partial beside a bad one is not counted."""
    good = {
        "series": "s",
        "iteration": 0,
        "microbatch": 0,
        "count": 0,
        "max": 0.0,
        "sum": 0.0,
        "valid": 8,
    }
    assert server.report(run=run, rank=0).status_code == 200
    answer = server.report(run=run, rank=0, partials=[good, {**good, "microbatch": 1, "count": -1}])
    assert answer.status_code == 422
    assert [e["pointer"] for e in answer.json()["errors"]] == ["/partials/1/count"]
    assert server.get(run, "totals")["keys"] == {}
