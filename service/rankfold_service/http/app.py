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
from rankfold_service.http import docs
from rankfold_service.http.lane import FastLane
from rankfold_service.http.openapi import describe
from rankfold_service.http.parts import Parts
from rankfold_service.http.plain import PlainRoute, ReportEndpoint, plain_routes
from rankfold_service.http.problems import answer_problem
from rankfold_service.http.routes import router
from rankfold_service.http.watch import Watch

OFF: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}


def create_app(parts: Parts) -> FastLane:
    """Return the ASGI application of one aggregator: the API, and a short way to it for reports."""
    reports = ReportEndpoint(parts)
    return FastLane(create_api(parts, reports), reports, Watch(reports, parts.telemetry))


def create_api(parts: Parts, reports: ReportEndpoint) -> FastAPI:
    """Return every route, described, watched, and answering errors as problem documents."""
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
    app.router.routes.extend(plain_routes(reports))
    app.router.routes.extend(router.routes)
    _add_description(app)
    for error in (RankfoldError, RequestValidationError, HTTPException):
        app.add_exception_handler(error, answer_problem)
    app.add_middleware(Watch, telemetry=parts.telemetry)
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
