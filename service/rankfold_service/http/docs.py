"""/docs: the description as one page of HTML, without anything from another server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from rankfold.answers import JsonObject

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
summary { cursor: pointer; padding: .3rem 0 }
code, pre { font: .875rem/1.45 ui-monospace, monospace }
pre { overflow-x: auto; padding: .75rem; background: #8881; border-radius: .4rem }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0 }
.method { display: inline-block; min-width: 4.5rem; font-weight: 600 }
"""

# The page holds no script and asks for nothing; the policy says so to the browser.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}


def page(document: JsonObject) -> str:
    """Return an OpenAPI document as a page for people."""
    info = document["info"]
    body = "".join(
        [
            f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
            _paragraphs(info["description"]),
            '<p>For programs: <a href="openapi.json">openapi.json</a></p>',
            *_operations(document),
            "<h2>Schemas</h2>",
            *_schemas(document),
        ]
    )
    head = f'<meta charset="utf-8"><title>{escape(info["title"])} API</title>'
    return f"<!doctype html><html lang=en><head>{head}<style>{_STYLE}</style></head><body>{body}"


def _operations(document: JsonObject) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            title = f'<span class="method">{method.upper()}</span><code>{escape(path)}</code>'
            summary = escape(operation.get("summary", ""))
            yield f"<details><summary>{title} {summary}</summary>"
            yield _paragraphs(operation.get("description", ""))
            yield _parameters(operation.get("parameters", []))
            yield from _request(operation.get("requestBody", {}))
            yield _responses(operation["responses"])
            yield "</details>"


def _parameters(parameters: list[JsonObject]) -> str:
    rows = ((p["name"], p["in"], _json(p["schema"]), p.get("description", "")) for p in parameters)
    return _table(("parameter", "in", "schema", ""), rows) if parameters else ""


def _request(body: JsonObject) -> Iterator[str]:
    for media_type, content in body.get("content", {}).items():
        yield f"<h4>Body: {escape(media_type)}</h4>"
        examples = {"example": {"value": content["example"]}} if "example" in content else {}
        for name, example in content.get("examples", examples).items():
            yield f"<p>{escape(name)}</p><pre>{_json(example['value'], indent=2)}</pre>"


def _responses(responses: JsonObject) -> str:
    rows = (
        (status, answer["description"], _names(answer), "") for status, answer in responses.items()
    )
    return _table(("status", "", "schema", ""), rows)


def _names(answer: JsonObject) -> str:
    references = (c["schema"].get("$ref", "") for c in answer.get("content", {}).values())
    return ", ".join(sorted({r.rpartition("/")[2] for r in references if r}))


def _schemas(document: JsonObject) -> Iterator[str]:
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        yield f"<pre>{_json(schema, indent=2)}</pre></details>"


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = ["".join(f"<th>{cell}</th>" for cell in head)]
    lines += ("".join(f"<td>{_cell(cell)}</td>" for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(text: str) -> str:
    return text if text.startswith("{&quot;") else escape(text)


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(part)}</p>" for part in text.split("\n\n") if part)


def _json(value: Any, indent: int | None = None) -> str:
    return escape(json.dumps(value, indent=indent, ensure_ascii=False))
