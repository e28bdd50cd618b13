"""The API as a caller meets it: statuses, documents, headers, tokens."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any
from urllib.parse import quote

import pytest
from starlette.types import Message

from rankfold.errors import NotFound, Overloaded, StoreUnavailable
from rankfold.wire import Receipt, Report
from rankfold_service.http.auth import Tokens
from rankfold_service.settings import Settings
from unit.service.http.serving import CASES, Service, Start

PARTIAL = {
    "series": "s",
    "iteration": 0,
    "microbatch": 0,
    "count": 1,
    "max": 0.5,
    "sum": 0.5,
    "valid": 8,
}
REPORT = {
    "run": "r",
    "rank": 0,
    "world_size": 1,
    "partials": [PARTIAL],
    "scalars": [{"key": "k", "iteration": 0, "microbatch": 0, "value": "NaN", "rule": "mean"}],
    "commits": [{"iteration": 0, "microbatches": 1}],
}
RUN = "/api/v1/projects/default/runs/r"
READS = [
    "/api/v1/projects",
    "/api/v1/projects/default/runs",
    RUN,
    *(f"{RUN}/{what}" for what in ("totals", "iterations", "ranks", "worst", "gate")),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_report_is_answered_as_the_cases_say(service: Service, case: dict[str, Any]) -> None:
    """Each case has its status, applies nothing where refused, and breaks no later scrape."""
    headers = {"content-type": case["content_type"]}
    answer = service.report(content=case["body"], headers=headers)
    assert answer.status_code == case["status"]
    runs = service.get("/api/v1/projects").json()["items"]
    if case["status"] == 200:
        assert answer.json() == {"accepted": 1, "duplicates": 0, "conflicts": 0}
    else:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == case["status"]
        assert runs == []
    assert service.get("/metrics").status_code == 200


def test_report_is_counted_once(service: Service) -> None:
    """The receipt tells what is new, and the gauges count it."""
    assert service.report(json=REPORT).json() == {"accepted": 2, "duplicates": 0, "conflicts": 0}
    packed = gzip.compress(json.dumps(REPORT).encode())
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    again = service.report(content=packed, headers=headers)
    assert again.json() == {"accepted": 0, "duplicates": 2, "conflicts": 0}
    scrape = service.get("/metrics").text
    assert 'rankfold_partials_total{outcome="accepted"} 2.0' in scrape
    assert 'rankfold_requests_total{code="200",route="/api/v1/partials"} 2.0' in scrape


def test_report_over_a_limit_is_refused(start: Start) -> None:
    """The settings bound bodies and lists, and refusals are counted by reason."""
    service = start(settings=Settings(max_body=500, max_items=1))
    commits = [{"iteration": i, "microbatches": 1} for i in range(2)]
    assert service.report(json={**REPORT, "meta": {"a": "x" * 500}}).status_code == 413
    assert service.report(json={"run": "r", "rank": 0, "commits": commits}).status_code == 413
    assert 'rankfold_rejected_total{reason="too_large"} 2.0' in service.get("/metrics").text


def test_large_report_is_taken(service: Service) -> None:
    """A body that is decoded beside the event loop comes out the same."""
    partials = [{**PARTIAL, "microbatch": n} for n in range(5000)]
    answer = service.report(json={"run": "r", "rank": 0, "partials": partials})
    assert answer.json()["accepted"] == 5000


def test_report_of_a_client_that_left_is_not_applied(service: Service) -> None:
    """What ends in the middle is not applied, and nobody is answered."""
    sent: list[Message] = []
    arriving: list[Message] = [
        {"type": "http.request", "body": b'{"run":"r","rank":0}', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return arriving.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/partials",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    asyncio.run(service.app(scope, receive, send))
    assert sent == []
    assert service.get("/api/v1/projects").json()["items"] == []
    assert 'code="499",route="/api/v1/partials"' in service.get("/metrics").text


def test_reads_answer_a_run(service: Service) -> None:
    """Every read answers, and a gate counts the mismatch."""
    service.report(json=REPORT)
    assert {service.get(path).status_code for path in READS} == {200}
    assert service.get(f"{RUN}/gate").json()["gate"] == "fail"
    assert service.get(f"{RUN}/totals").json()["keys"]["s_mismatch_count"]["value"] == 1
    items = service.get(f"{RUN}/iterations?from=0&to=0&key=s_diff_max").json()["items"]
    assert items == [{"iteration": 0, "complete": True, "keys": {"s_diff_max": 0.5}}]


def test_gate_takes_every_parameter(service: Service) -> None:
    """What the caller allows passes."""
    service.report(json=REPORT)
    query = (
        "series=s&from=0&to=5&attempts=0&max_mismatch_count=1&max_diff_max=1&max_diff_mean=1e-1"
        "&require_finished=true&allow_absent=true&live=false"
    )
    assert service.get(f"{RUN}/gate?{query}").json()["gate"] == "incomplete"
    assert service.call("POST", f"{RUN}/finish", json={"attempt": 0}).json()["finished"] is True
    assert service.get(f"{RUN}/gate?{query}").json()["gate"] == "pass"


def test_delete_forgets_a_run(service: Service) -> None:
    """A deleted run is not found; a parameter that could mean less is refused."""
    service.report(json=REPORT)
    assert service.call("DELETE", f"{RUN}?attempt=0").status_code == 422
    assert service.call("DELETE", RUN).json()["deleted"] is True
    assert [service.call("DELETE", RUN).status_code, service.get(RUN).status_code] == [404, 404]


@pytest.mark.parametrize("name", ["a b", "ü/😀"[0], "😀", "100%", "a?b#c", "&=+", "e\u0301", "..."])
def test_names_travel_percent_encoded(service: Service, name: str) -> None:
    """Whatever a name holds, it is found again by its encoded path."""
    service.report(json={"project": name, "run": name, "rank": 0})
    encoded = quote(name, safe="")
    answer = service.get(f"/api/v1/projects/{encoded}/runs/{encoded}")
    assert (answer.status_code, answer.json().get("run")) == (200, name)


@pytest.mark.parametrize("name", ["%00", "%0A", "a" * 201, "%FF", "a%2Fb", "%ED%A0%80"])
def test_names_that_nothing_can_have_are_not_found(service: Service, name: str) -> None:
    """A name that is not allowed is a name that nothing has."""
    for path in (f"/api/v1/projects/{name}/runs/r", f"/api/v1/projects/default/runs/{name}"):
        answer = service.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "/query/limit"),
        ("limit=1001", "/query/limit"),
        ("limit=x", "/query/limit"),
        ("limit=1_0", "/query/limit"),
        ("limit=", "/query/limit"),
        ("after=-1", "/query/after"),
        (f"from={2**31}", "/query/from"),
        ("to=1.0", "/query/to"),
        ("rank=" + "9" * 5000, "/query/rank"),
        ("attempts=some", "/query/attempts"),
        ("attempts=-1", "/query/attempts"),
        ("key=", "/query/key"),
        ("keys=a", "/query/keys"),
        ("first=1", "/query/first"),
    ],
)
def test_query_faults_are_named(service: Service, query: str, pointer: str) -> None:
    """A parameter that is wrong or not known is refused by its pointer."""
    answer = service.get(f"{RUN}/iterations?{query}")
    assert answer.status_code == 422
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [pointer]


@pytest.mark.parametrize(
    ("sent", "status"),
    [({}, 415), ({"content": b"", "headers": {"Content-Type": "application/json"}}, 400)],
)
def test_finish_without_a_body_says_what_to_send(
    service: Service, sent: dict[str, Any], status: int
) -> None:
    """Who only posts is told the body, whether or not they gave its type."""
    answer = service.call("POST", f"{RUN}/finish", **sent)
    assert answer.status_code == status
    assert 'send {"attempt": 0} as application/json' in answer.json()["detail"]


def test_paths_and_methods_that_do_not_exist_are_problems(service: Service) -> None:
    """What the framework refuses looks like what we refuse."""
    missing = service.get("/api/v1/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    assert service.get(f"{RUN}/").status_code == 404
    assert "/docs" in service.get("/").json()["detail"]
    refused = [
        ("GET", "/api/v1/partials", "POST"),
        ("PUT", RUN, "DELETE, GET"),
        ("POST", "/metrics", "GET, HEAD"),
    ]
    for method, path, allowed in refused:
        answer = service.call(method, path)
        assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
        assert answer.headers["allow"] == allowed


def test_health_and_readiness_are_open(service: Service) -> None:
    """Both answer GET and HEAD."""
    for path in ("/-/healthy", "/-/ready"):
        assert [service.call(method, path).status_code for method in ("GET", "HEAD")] == [200] * 2


def test_ready_means_that_the_store_writes(service: Service, monkeypatch: Any) -> None:
    """A store that does not answer is not ready, though the process is healthy."""

    async def probe() -> None:
        raise StoreUnavailable("the disk is full", 5)

    monkeypatch.setattr(service.aggregator, "probe", probe)
    answer = service.get("/-/ready")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert service.get("/-/healthy").status_code == 200


def test_ready_means_that_a_scrape_renders(service: Service, monkeypatch: Any) -> None:
    """A scrape that fails is not ready, and the reason stays in the log."""

    async def render(_: str | None) -> tuple[bytes, str]:
        raise ValueError("secret")

    monkeypatch.setattr(service.exposition, "render", render)
    answer = service.get("/-/ready")
    assert (answer.status_code, answer.json()["detail"]) == (503, "a scrape does not render")


def test_metrics_are_negotiated(service: Service) -> None:
    """A scraper that asks for OpenMetrics gets it, without a redirect."""
    assert service.get("/metrics").headers["content-type"].startswith("text/plain")
    wanted = {"accept": "application/openmetrics-text"}
    answer = service.get("/metrics", headers=wanted)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_metrics_answer_head(service: Service) -> None:
    """HEAD says of the scrape what GET would."""
    answers = [service.call(method, "/metrics") for method in ("GET", "HEAD")]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len({answer.headers["content-type"] for answer in answers}) == 1


def test_too_much_at_once_says_when_to_come_back(service: Service, monkeypatch: Any) -> None:
    """What was not applied for load may be sent again."""

    async def ingest(_: Report) -> Receipt:
        raise Overloaded("4096 reports wait", 2)

    monkeypatch.setattr(service.aggregator, "ingest", ingest)
    answer = service.report(json=REPORT)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    assert answer.json()["retryable"] is True


TOKENS = Tokens.parse(
    """
    [[token]]
    name = "writer"
    token = "w"
    scopes = ["write"]
    [[token]]
    name = "reader"
    token = "r"
    scopes = ["read"]
    [[token]]
    name = "one"
    token = "one"
    scopes = ["read", "write", "admin"]
    project = "default"
    """
)


def bearing(token: str) -> dict[str, dict[str, str]]:
    """Return the arguments of a request that bears a token."""
    return {"headers": {"Authorization": f"Bearer {token}"}}


def test_tokens_guard_every_call(start: Start) -> None:
    """Without a token nothing but health and readiness answers; with another scope neither."""
    service = start(tokens=TOKENS)
    calls = [("GET", path) for path in [*READS, "/metrics"]]
    calls += [("POST", "/api/v1/partials"), ("POST", f"{RUN}/finish"), ("DELETE", RUN)]
    for method, path in calls:
        answer = service.call(method, path)
        assert (answer.status_code, "www-authenticate" in answer.headers) == (401, True)
        wrong = "w" if method == "GET" else "r"
        assert service.call(method, path, **bearing(wrong)).status_code == 403
    assert service.get("/-/healthy").status_code == service.get("/-/ready").status_code == 200


def test_tokens_reach_as_far_as_their_project(start: Start) -> None:
    """A token for one project sees and touches that one only."""
    service = start(tokens=TOKENS)
    for project in ("a", "default", "z"):
        answer = service.report(json={**REPORT, "project": project}, **bearing("w"))
        assert answer.status_code == 200
    assert service.report(json=REPORT, **bearing("one")).json()["duplicates"] == 2
    other = service.report(json={**REPORT, "project": "a"}, **bearing("one"))
    assert (other.status_code, other.json()["code"]) == (403, "forbidden")
    mine = {"items": [{"project": "default", "runs": 1}], "next": None}
    assert service.get("/api/v1/projects?limit=1", **bearing("one")).json() == mine
    assert service.get("/api/v1/projects?after=default", **bearing("one")).json()["items"] == []
    assert len(service.get("/api/v1/projects", **bearing("r")).json()["items"]) == 3
    assert service.get("/api/v1/projects/a/runs", **bearing("one")).status_code == 403
    assert service.get("/metrics", **bearing("one")).status_code == 403
    assert service.call("DELETE", RUN, **bearing("one")).status_code == 200


def test_unforeseen_failures_are_hidden_and_logged(
    service: Service, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A caller is told an id to ask about; the log has the reason under it."""

    async def broken(*_: Any) -> None:
        raise ValueError("secret")

    monkeypatch.setattr(service.aggregator, "run", broken)
    answer = service.get(RUN, headers={"X-Request-ID": "id-1"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (500, "id-1")
    assert "secret" not in answer.text
    assert answer.json()["request_id"] == "id-1"
    failed = next(r for r in caplog.records if r.getMessage() == "request failed")
    assert (vars(failed)["request_id"], failed.exc_info is not None) == ("id-1", True)


def test_answers_without_json_form_are_failures(service: Service, monkeypatch: Any) -> None:
    """NaN never reaches a caller, not even by a mistake of ours."""

    async def answer(*_: Any) -> dict[str, float]:
        return {"value": float("nan")}

    monkeypatch.setattr(service.aggregator, "run", answer)
    assert service.get(RUN).status_code == 500


def test_unknown_runs_are_not_found(service: Service) -> None:
    """A run that was never reported is a 404 of ours for every read of it."""
    for path in READS[2:]:
        assert service.get(path).json()["code"] == NotFound.code
    assert service.get("/api/v1/projects/none/runs").json() == {"items": [], "next": None}
