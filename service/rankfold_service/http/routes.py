"""The reads, `finish` and `delete`: parameters in, the aggregator's plain answer out.

Answers are written as they come: the types in the decorators describe them in /openapi.json and
cost nothing when a request is answered.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from rankfold import answers
from rankfold.errors import MalformedBody, NotFound, UnsupportedMedia
from rankfold.names import MAX_NAME, name_fault
from rankfold.wire import API_VERSION
from rankfold_service.aggregate import Aggregator
from rankfold_service.http.address import check_address
from rankfold_service.http.auth import Scope
from rankfold_service.http.body import by_name, read_body
from rankfold_service.http.decode import decode_finish
from rankfold_service.http.openapi import FINISH_BODY, problems
from rankfold_service.http.parts import admit, parts_of
from rankfold_service.http.problems import to_json
from rankfold_service.http.queries import (
    GateQuery,
    IterationsQuery,
    NamePage,
    NoQuery,
    RanksQuery,
    TotalsQuery,
    WorstQuery,
)
from rankfold_service.http.schemas import described
from rankfold_service.http.shapes import PathName

FINISH_BYTES = 64 * 1024
FINISH_HINT = 'send {"attempt": 0} as application/json, with the number of the attempt that is over'
RUN_PATH = "/projects/{project}/runs/{run}"


class Place(NamedTuple):
    """A run that a request may touch, and who answers for it."""

    aggregator: Aggregator
    project: str
    run: str


_percent_encoded = Path(description="percent-encoded")
Project = Annotated[PathName, _percent_encoded]
Run = Annotated[PathName, _percent_encoded]


def _project(request: Request, project: str, scope: Scope) -> Aggregator:
    admit(request, scope).require(project)
    _check_name("project", project)
    return parts_of(request).aggregator


def _check_name(what: str, name: str) -> None:
    """Take a name that nothing can have for one that nothing has."""
    if name_fault(name, in_path=True):
        raise NotFound(f"no {what} can have the name {name[:MAX_NAME]!r}")


def _place(scope: Scope) -> Any:
    def place(request: Request, project: Project, run: Run) -> Place:
        aggregator = _project(request, project, scope)
        _check_name("run", run)
        return Place(aggregator, project, run)

    return Depends(place)


Readable = Annotated[Place, _place("read")]
Writable = Annotated[Place, _place("write")]
Deletable = Annotated[Place, _place("admin")]

router = APIRouter(prefix=f"/api/v{API_VERSION}", dependencies=[Depends(check_address)])


def _answer(answer: object) -> Response:
    return Response(to_json(answer), media_type="application/json")


@router.get(
    "/projects",
    response_model=described(answers.ProjectsAnswer),
    responses=problems(401, 403, 422, 503),
)
async def list_projects(request: Request, page: Annotated[NamePage, Query()]) -> Response:
    """List projects by name; a token for one project sees that one."""
    grant = admit(request, "read")
    aggregator = parts_of(request).aggregator
    if grant.project is None:
        return _answer(await aggregator.projects(limit=page.limit, after=page.after))
    return _answer(await _only(aggregator, grant.project, page.after))


async def _only(aggregator: Aggregator, project: str, after: str | None) -> answers.ProjectsAnswer:
    """Return one project as a list, if it exists and is yet to come."""
    found: answers.ProjectsAnswer = {"items": [], "next": after}
    while not found["items"]:
        found = await aggregator.projects(limit=1000, after=found["next"])
        found["items"] = [item for item in found["items"] if item["project"] == project]
        if found["next"] is None:
            break
    return {"items": found["items"], "next": None}


@router.get(
    "/projects/{project}/runs",
    response_model=described(answers.RunsAnswer),
    responses=problems(401, 403, 404, 422, 503),
)
async def list_runs(
    request: Request, project: Project, page: Annotated[NamePage, Query()]
) -> Response:
    """List the runs of a project by name; an unknown project has none."""
    aggregator = _project(request, project, "read")
    return _answer(await aggregator.runs(project, limit=page.limit, after=page.after))


@router.get(
    RUN_PATH,
    response_model=described(answers.RunAnswer),
    responses=problems(401, 403, 404, 422, 503),
)
async def show_run(place: Readable, _: Annotated[NoQuery, Query()]) -> Response:
    """Describe one run: state, attempts, last report, live gate."""
    return _answer(await place.aggregator.run(place.project, place.run))


@router.get(
    f"{RUN_PATH}/totals",
    response_model=described(answers.TotalsAnswer),
    responses=problems(401, 403, 404, 422, 503),
)
async def show_totals(place: Readable, query: Annotated[TotalsQuery, Query()]) -> Response:
    """Show every key, folded over all ranks and iterations, and what it was folded from."""
    aggregator, project, run = place
    answer = await aggregator.totals(project, run, attempts=query.attempts, rank=query.rank)
    return _answer(answer)


@router.get(
    f"{RUN_PATH}/iterations",
    response_model=described(answers.IterationsAnswer),
    responses=problems(401, 403, 404, 422, 503),
)
async def list_iterations(place: Readable, query: Annotated[IterationsQuery, Query()]) -> Response:
    """Show the keys' values per iteration, ascending."""
    aggregator, project, run = place
    answer = await aggregator.iterations(
        project,
        run,
        query.selection(),
        keys=tuple(query.key),
        rank=query.rank,
        limit=query.limit,
        after=query.after,
    )
    return _answer(answer)


@router.get(
    f"{RUN_PATH}/ranks",
    response_model=described(answers.RanksAnswer),
    responses=problems(401, 403, 404, 422, 503),
)
async def list_ranks(place: Readable, query: Annotated[RanksQuery, Query()]) -> Response:
    """Show each rank's totals, last report and what it owes."""
    aggregator, project, run = place
    answer = await aggregator.ranks(
        project, run, attempts=query.attempts, limit=query.limit, after=query.after
    )
    return _answer(answer)


@router.get(
    f"{RUN_PATH}/worst",
    response_model=described(answers.WorstsAnswer),
    responses=problems(401, 403, 404, 422, 503),
)
async def list_worst(place: Readable, query: Annotated[WorstQuery, Query()]) -> Response:
    """Show the worst tokens, largest first."""
    aggregator, project, run = place
    answer = await aggregator.worst(
        project,
        run,
        series=tuple(query.series),
        attempts=query.attempts,
        limit=query.limit,
        after=query.after,
    )
    return _answer(answer)


@router.get(
    f"{RUN_PATH}/gate",
    response_model=described(answers.GateAnswer),
    responses=problems(401, 403, 404, 422, 503),
)
async def show_gate(place: Readable, query: Annotated[GateQuery, Query()]) -> Response:
    """Give the verdict on a run, and why."""
    aggregator, project, run = place
    return _answer(await aggregator.gate(project, run, query.selection(), query.policy()))


@router.post(
    f"{RUN_PATH}/finish",
    response_model=described(answers.FinishAnswer),
    responses=problems(400, 401, 403, 404, 413, 415, 422, 503),
    openapi_extra={"requestBody": FINISH_BODY},
)
async def finish_run(request: Request, place: Writable, _: Annotated[NoQuery, Query()]) -> Response:
    """Mark an attempt finished; again changes nothing."""
    seconds = parts_of(request).settings.body_timeout
    headers = by_name(request.scope["headers"])
    try:
        body = await read_body(headers, request.receive, FINISH_BYTES, seconds)
        attempt = decode_finish(body.unpacked(FINISH_BYTES))
    except (UnsupportedMedia, MalformedBody) as error:
        raise type(error)(f"{error}; {FINISH_HINT}") from error
    return _answer(await place.aggregator.finish(place.project, place.run, attempt))


@router.delete(
    RUN_PATH,
    response_model=described(answers.DeleteAnswer),
    responses=problems(401, 403, 404, 422, 503),
)
async def delete_run(place: Deletable, _: Annotated[NoQuery, Query()]) -> Response:
    """Delete a run; a later report starts it anew."""
    return _answer(await place.aggregator.delete(place.project, place.run))
