"""Makes the application: every route, one watcher around them, no globals."""

from __future__ import annotations

from functools import cache

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from rankfold import __version__
from rankfold.answers import JsonObject
from rankfold.errors import RankfoldError
from rankfold_service.aggregate import Aggregator
from rankfold_service.exposition import Exposition
from rankfold_service.http import docs
from rankfold_service.http.auth import Tokens
from rankfold_service.http.openapi import describe
from rankfold_service.http.parts import Parts
from rankfold_service.http.plain import PlainRoute, plain_routes
from rankfold_service.http.problems import answer_problem
from rankfold_service.http.routes import router
from rankfold_service.http.watch import Watch
from rankfold_service.settings import Settings
from rankfold_service.telemetry import Telemetry

OFF: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}


def create_app(
    aggregator: Aggregator,
    exposition: Exposition,
    telemetry: Telemetry,
    tokens: Tokens,
    settings: Settings,
) -> FastAPI:
    """Return the ASGI application of one aggregator.

    Args:
        aggregator: takes reports and answers reads.
        exposition: renders scrapes.
        telemetry: counts requests, receipts and refusals.
        tokens: who may do what; `Tokens()` lets everybody do everything.
        settings: its limits are the application's.
    """
    parts = Parts(aggregator, exposition, telemetry, tokens, settings)
    app = FastAPI(
        title="Rankfold",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        telemetry=OFF,
    )
    app.state.parts = parts
    app.router.routes.extend(plain_routes(parts))
    app.router.routes.extend(router.routes)
    _add_description(app)
    for error in (RankfoldError, RequestValidationError, HTTPException):
        app.add_exception_handler(error, answer_problem)
    app.add_middleware(Watch, telemetry=telemetry)
    return app


def _add_description(app: FastAPI) -> None:
    """Serve what the API is, for programs and for people; made when it is first asked for."""

    @cache
    def described() -> JsonObject:
        return describe(app)

    async def openapi(_: Request) -> Response:
        return JSONResponse(described())

    async def people(_: Request) -> Response:
        return HTMLResponse(docs.page(described()), headers=docs.HEADERS)

    app.openapi = described  # type: ignore[method-assign]
    app.router.routes += [PlainRoute("/openapi.json", openapi), PlainRoute("/docs", people)]
