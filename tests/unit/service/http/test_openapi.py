"""The description says what is accepted and answered, and needs no other server to be read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given

from rankfold.errors import Inconsistent
from rankfold.rules import RuleSet
from rankfold_service.http.decode import decode_report
from rankfold_service.http.shapes import EXAMPLES
from rankfold_service.http.shapes import REPORT as SHAPE
from unit.service.http.serving import CASES, Service
from unit.service.http.test_app import READS, REPORT
from unit.service.http.test_decode import PARTIAL, SCALAR, WORST
from unit.service.http.test_decode_properties import good_partials

SCHEMA = jsonschema_rs.Draft202012Validator(SHAPE.json_schema())


@pytest.fixture
def document(service: Service) -> dict[str, Any]:
    """Return the description."""
    found: dict[str, Any] = service.get("/openapi.json").json()
    return found


def test_openapi_describes_every_route(service: Service, document: dict[str, Any]) -> None:
    """No route is forgotten, and every operation has an id of its own."""
    served = {
        route.path for route in service.api.routes if route.path not in ("/docs", "/openapi.json")
    }
    assert set(document["paths"]) == served
    ids = [op["operationId"] for methods in document["paths"].values() for op in methods.values()]
    assert len(ids) == len(set(ids))


def test_openapi_refers_to_nothing_missing(document: dict[str, Any]) -> None:
    """Every reference leads somewhere, and every refusal is a problem document."""
    schemas = document["components"]["schemas"]
    references = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(document)))
    assert references <= set(schemas)
    for methods in document["paths"].values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert list(answer["content"]) == ["application/problem+json"]


def test_openapi_describes_the_answers(service: Service, document: dict[str, Any]) -> None:
    """What a read answers is what the description says."""
    service.report(json=REPORT)
    for path in READS:
        template = path.replace("default", "{project}").replace("runs/r", "runs/{run}")
        content = document["paths"][template]["get"]["responses"]["200"]["content"]
        schema = {**content["application/json"]["schema"], "components": document["components"]}
        jsonschema_rs.validate(schema, service.get(path).json())


@pytest.mark.parametrize("name", EXAMPLES)
def test_openapi_examples_are_accepted(service: Service, name: str) -> None:
    """Whoever copies an example is answered 200."""
    SCHEMA.validate(EXAMPLES[name])
    answer = service.report(json=EXAMPLES[name])
    assert answer.json() == {"accepted": 2, "duplicates": 0, "conflicts": 0}


@given(good_partials())
def test_openapi_schema_takes_what_is_taken(row: dict[str, Any]) -> None:
    """The schema comes from the types that decode, in both forms."""
    rows = {"run": "r", "rank": 0, "partials": [row]}
    columns = {"run": "r", "rank": 0, "partials": {name: [v] for name, v in row.items()}}
    for document in (rows, columns):
        decode_report(json.dumps(document).encode(), RuleSet())
        SCHEMA.validate(document)


BY_SCHEMA = {
    "count_is_a_string",
    "count_is_a_bool",
    "unknown_member",
    "control_character",
    "dots_as_run",
    "iteration_10_20",
    "valid_then_invalid",
}


def test_openapi_schema_refuses_what_a_schema_can() -> None:
    """Wrong types, bounds and names are refused by the schema already."""
    bodies = [json.loads(case["body"]) for case in CASES if case["name"] in BY_SCHEMA]
    assert [SCHEMA.is_valid(body) for body in bodies] == [False] * len(BY_SCHEMA)


NAMES = [
    *("", "a", "a" * 200, "a" * 201, "a/b", ".", "..", "\u00fc \u2028"),
    *("a\n", "\n", "\x00", "a\x7f", "\x85"),
]
NAMED: list[Callable[[str], dict[str, Any]]] = [
    lambda name: {"run": name},
    lambda name: {"project": name},
    lambda name: {"meta": {name: "a"}},
    lambda name: {"meta": {"a": "b", name: 0}},
    lambda name: {"meta": {"a": name}},
    lambda name: {"partials": [{**PARTIAL, "series": name}]},
    lambda name: {"partials": {key: [value] for key, value in PARTIAL.items()} | {name: [0]}},
    lambda name: {"partials": [{**PARTIAL, "worst": {**WORST, "sample": name}}]},
    lambda name: {"scalars": [{**SCALAR, "key": name}]},
    lambda name: {"scalars": [{**SCALAR, name: 0}]},
    lambda name: {"commits": {"iteration": [0], "microbatches": [1], name: [0]}},
]


@pytest.mark.parametrize("name", NAMES)
def test_openapi_schema_refuses_the_names_that_are_refused(name: str) -> None:
    """Wherever a name stands, the schema and the aggregator agree on it."""
    for members in NAMED:
        document = {"run": "r", "rank": 0, **members(name)}
        try:
            decode_report(json.dumps(document).encode(), RuleSet())
        except Inconsistent:
            assert not SCHEMA.is_valid(document), document
        else:
            SCHEMA.validate(document)


def test_docs_need_no_other_server(service: Service) -> None:
    """The page asks for nothing, runs nothing and shows every call."""
    answer = service.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert not re.search(r"<script|<link|<img|src=|https?://", answer.text)
    assert "/api/v1/partials" in answer.text
    assert [service.get(path).status_code for path in ("/redoc", "/docs/")] == [404, 404]
