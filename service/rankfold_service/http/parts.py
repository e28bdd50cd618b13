"""What an application is made from, and what a request's token may touch of it."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from rankfold_service.aggregate import Aggregator
from rankfold_service.exposition import Exposition
from rankfold_service.http.auth import Grant, Scope, Tokens
from rankfold_service.http.body import by_name
from rankfold_service.settings import Settings
from rankfold_service.telemetry import Telemetry


@dataclass(frozen=True)
class Parts:
    """What the routes work with."""

    aggregator: Aggregator
    exposition: Exposition
    telemetry: Telemetry
    tokens: Tokens
    settings: Settings


def parts_of(request: Request) -> Parts:
    """Return what the application was made from."""
    parts: Parts = request.app.state.parts
    return parts


def admit(request: Request, scope: Scope) -> Grant:
    """Return what a request's token may touch."""
    given = by_name(request.scope["headers"]).get(b"authorization", b"")
    return parts_of(request).tokens.admit(given.decode("latin-1"), scope)
