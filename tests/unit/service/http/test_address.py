"""Names, parameters and headers are what was sent: nothing is replaced or wins silently."""

from __future__ import annotations

import gzip
import json
from urllib.parse import quote

import pytest

from rankfold_service.http.auth import Tokens
from rankfold_service.http.queries import REPEATABLE, Name, NumberPage, Query
from unit.service.http.serving import Service, Start

RUNS = "/api/v1/projects/default/runs"
REPORT = {"run": "r", "rank": 0}
STAND_IN = "\ufffd"  # what the framework reads in the place of bytes that are not UTF-8
TOKENS = '[[token]]\nname = "all"\ntoken = "all"\nscopes = ["read", "write"]\n'


@pytest.mark.parametrize("name", ["%FE", "%ed%a0%80", "a%FEb"])
def test_names_that_are_not_utf8_are_nobodys(service: Service, name: str) -> None:
    """They are not taken for the replacement character, which a run may be called."""
    taken = {STAND_IN, STAND_IN * 3, f"a{STAND_IN}b"}
    for given in taken:
        service.report(json={"project": given, "run": given, "rank": 0})
        service.report(json={"run": given, "rank": 0})
    project = f"/api/v1/projects/{name}/runs"
    run = f"{project}/{name}"
    calls = [("GET", path) for path in (project, run, f"{RUNS}/{name}", f"{run}/gate")]
    calls += [("DELETE", run), ("DELETE", f"{RUNS}/{name}"), ("POST", f"{run}/finish")]
    for method, path in calls:
        answer = service.call(method, path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert "is not UTF-8" in answer.json()["detail"]
    assert {item["run"] for item in service.get(RUNS).json()["items"]} == taken
    found = service.get(f"{RUNS}/{quote(STAND_IN)}").json()
    assert (found["run"], found["state"]) == (STAND_IN, "running")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{RUNS}/r%2Ftotals"),
        ("GET", f"{RUNS}/r%2fgate"),
        ("GET", "/api/v1/projects/default%2Fruns"),
        ("GET", "/api/v1/projects/default%2Fruns/r"),
        ("DELETE", "/api/v1/projects/default%2fruns/r"),
        ("POST", f"{RUNS}/r%2Ffinish"),
    ],
)
def test_encoded_slash_is_part_of_a_name(service: Service, method: str, path: str) -> None:
    """It divides nothing: no name has a slash, so nothing is there, and nothing is changed."""
    service.report(json=REPORT)
    body = {"json": {"attempt": 0}} if method == "POST" else {}
    answer = service.call(method, path, **body)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert service.get(f"{RUNS}/r").json()["state"] == "running"


def test_encoded_percent_before_what_looks_like_a_slash_is_a_name(service: Service) -> None:
    """What is encoded twice is decoded once."""
    service.report(json={"run": "a%2Fb", "rank": 0})
    assert service.get(f"{RUNS}/a%252Fb").json()["run"] == "a%2Fb"


@pytest.mark.parametrize(
    ("query", "faults"),
    [
        ("key=a%FE", {"/query/key": "is not UTF-8, percent-encoded"}),
        ("%FE=1", {"/query/\ufffd": "is not UTF-8, percent-encoded"}),
        ("limit=1&limit=2", {"/query/limit": "is given 2 times, and may be given once"}),
        ("limit=&key=a&limit=2", {"/query/limit": "is given 2 times, and may be given once"}),
        (
            "rank=1&rank=1&rank=2&to=%FE",
            {
                "/query/to": "is not UTF-8, percent-encoded",
                "/query/rank": "is given 3 times, and may be given once",
            },
        ),
    ],
)
def test_query_faults_are_told(service: Service, query: str, faults: dict[str, str]) -> None:
    """What is not text is refused, and so is what the last value of several would decide."""
    service.report(json=REPORT)
    answer = service.get(f"{RUNS}/r/iterations?{query}")
    told = {fault["pointer"]: fault["reason"] for fault in answer.json()["errors"]}
    assert (answer.status_code, answer.json()["code"], told) == (422, "inconsistent", faults)


def test_lists_repeat(service: Service) -> None:
    """Parameters that are lists are given once for each value; any text is one."""
    service.report(json=REPORT)
    assert service.get(f"{RUNS}/r/iterations?key=a&key=b&key=%F0%9F%98%80&key=a").status_code == 200


def test_parameters_that_repeat_are_the_lists() -> None:
    """The words in the table are those of the models."""
    models = [*Query.__subclasses__(), *NumberPage.__subclasses__()]
    fields = [each for model in models for each in model.model_fields.items()]
    lists = {field.alias or name for name, field in fields if field.annotation == list[Name]}
    assert lists == REPEATABLE


@pytest.mark.parametrize(
    "again",
    [
        ("content-encoding", "identity"),
        ("Content-Encoding", "gzip"),
        ("content-type", "application/json"),
        ("content-type", "text/plain"),
    ],
)
def test_headers_that_come_twice_are_a_list(service: Service, again: tuple[str, str]) -> None:
    """A body that was packed twice is not taken for one that was packed once."""
    headers = [("content-type", "application/json"), ("content-encoding", "gzip"), again]
    answer = service.report(content=gzip.compress(json.dumps(REPORT).encode()), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media")
    assert f", {again[1]}" in answer.json()["detail"]


def test_two_tokens_are_none(start: Start) -> None:
    """Neither the first nor the last counts, for reports and reads alike."""
    service = start(Tokens.parse(TOKENS))
    headers = [("authorization", "Bearer all")]
    assert service.report(json=REPORT, headers=headers * 2).status_code == 401
    assert service.get(RUNS, headers=headers * 2).status_code == 401
    assert service.get(RUNS, headers=headers).status_code == 200
    assert service.report(json=REPORT, headers=headers).status_code == 200
