"""/openapi.json: what the framework knows of the reads, and by hand what it does not.

The schema of a report comes from the same types that decode it, so it says what is accepted.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from rankfold import __version__, answers
from rankfold.answers import JsonObject
from rankfold.wire import REPORT_PATH
from rankfold_service.http.problems import MEDIA_TYPE
from rankfold_service.http.schemas import described
from rankfold_service.http.shapes import EXAMPLES, FINISH, REPORT

DESCRIPTION = """\
Trainers report partials of every microbatch; readers get them folded over ranks and iterations:
exactly, once, durably. Every error is a problem document (RFC 9457). Where the aggregator runs
with a tokens file, send `Authorization: Bearer <token>`. Where a name stands twice in one JSON
object, the last value counts. An integer is written without fraction or exponent: 5, not 5.0.
"""

REPORT_NOTES = """\
Takes partials, scalars and commits of one rank, whole or not at all; 200 means that they are on
disk. Sending the same again is counted once. Each list is either an array of objects or one
object of arrays of one length. `Content-Encoding: gzip` is taken.

Beyond this schema: `count <= valid`, `nonfinite <= count`, `max` is null exactly where `valid`
equals `nonfinite`, and `sum` and `sum_sq` are 0 there; `max`, `sum` and `sum_sq` are 0 where
`count` is 0, `total >= valid`, `rank < world_size`, and `world_size` is the attempt's first. A
scalar without `rule` needs one in the rules file.
"""


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of the answers that are problem documents."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemAnswer"}}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }


def _by_name(statuses: dict[int | str, dict[str, Any]]) -> JsonObject:
    return {str(status): described_ for status, described_ in statuses.items()}


def _ok(description: str, content: JsonObject) -> JsonObject:
    return {"200": {"description": description, "content": content}}


def _json(schema: str) -> JsonObject:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


FINISH_BODY = {
    "required": True,
    "content": {"application/json": {"schema": FINISH.json_schema(), "example": {"attempt": 0}}},
}

_TEXT = {"text/plain": {"schema": {"type": "string"}}}
_OPENMETRICS = {"application/openmetrics-text": {"schema": {"type": "string"}}}

_REPORT = {
    "summary": "Report partials",
    "operationId": "report_partials",
    "description": REPORT_NOTES,
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/ReportBody"},
                "examples": {name: {"value": value} for name, value in EXAMPLES.items()},
            }
        },
    },
    "responses": {
        **_ok("What became of the partials and scalars", _json("ReceiptAnswer")),
        **_by_name(problems(400, 401, 403, 413, 415, 422, 429, 503)),
    },
}

_METRICS = {
    "summary": "Metrics",
    "operationId": "metrics",
    "description": "Every gauge, as text or OpenMetrics by `Accept`; for all-project tokens.",
    "responses": {
        **_ok("A scrape", _TEXT | _OPENMETRICS),
        **_by_name(problems(401, 403, 503)),
    },
}


def _probe(name: str, description: str, *statuses: int) -> JsonObject:
    operation = {
        "summary": name.capitalize(),
        "description": description,
        "security": [],
        "responses": {**_ok("Yes", _TEXT), **_by_name(problems(*statuses))},
    }
    return {method: {**operation, "operationId": f"{name}_{method}"} for method in ("get", "head")}


PLAIN_PATHS: JsonObject = {
    REPORT_PATH: {"post": _REPORT},
    "/metrics": {"get": _METRICS},
    "/-/healthy": _probe("healthy", "The process lives."),
    "/-/ready": _probe("ready", "A report can be made durable, and a scrape renders.", 503),
}


def describe(app: FastAPI) -> JsonObject:
    """Return the description of the whole API."""
    document = get_openapi(
        title="Rankfold", version=__version__, description=DESCRIPTION, routes=app.routes
    )
    document["paths"] = PLAIN_PATHS | document["paths"]
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    _add(schemas, "ReportBody", REPORT)
    for answer in (answers.ReceiptAnswer, answers.ProblemAnswer):
        _add(schemas, answer.__name__, TypeAdapter(described(answer)))
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{}, {"token": []}]
    return document


def _add(schemas: JsonObject, name: str, shape: TypeAdapter[Any]) -> None:
    schema = shape.json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(schema.pop("$defs", {}))
    schemas[name] = schema
