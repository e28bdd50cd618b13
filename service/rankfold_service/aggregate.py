"""The use cases: take a report, answer a question; nothing here knows HTTP or SQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain, islice
from typing import Any, TypeVar

from rankfold import answers
from rankfold.coverage import Missing, Selection, missing_by_rank
from rankfold.errors import StoreDamaged, StoreUnavailable
from rankfold.gate import Policy
from rankfold.ledger import Attempts, Ledger
from rankfold.reading import iterations
from rankfold.rules import RuleSet
from rankfold.wire import Receipt, Report
from rankfold_service import present
from rankfold_service.judge import Ages, Judge
from rankfold_service.lines import Lines
from rankfold_service.look import Lookout
from rankfold_service.retention import Retention, forget
from rankfold_service.store import Name, Store
from rankfold_service.writer import Writer

T = TypeVar("T")
PROBE_TIMEOUT = 5.0


class Aggregator:
    """Answers every call of the API from a store, through its one writer.

    Args:
        writer: runs the calls of the store.
        rules: the rules in force.
        ages: when silence matters.
        retention: which runs are forgotten.
        now: the wall clock, in seconds since the epoch.
    """

    def __init__(
        self,
        writer: Writer,
        rules: RuleSet,
        ages: Ages,
        retention: Retention,
        now: Callable[[], float],
    ) -> None:
        self.rules = rules
        self._writer = writer
        self._judge = Judge(ages, now)
        self._retention = retention
        self._now = now
        self._lookout = Lookout(writer, self._judge)

    async def ingest(self, report: Report) -> Receipt:
        """Take a report; when this returns, it is durable.

        Raises:
            Inconsistent: it contradicts what is known of the run.
            Unavailable: nothing was applied; send it again.
        """
        return await self._writer.submit(report)

    def hand_over(self, report: Report, answer: Callable[[Receipt | Exception], None]) -> None:
        """Take a report; `answer` is called in the event loop with what `ingest` returns or raises.

        Raises:
            Unavailable: nothing was applied, and `answer` is not called.
        """
        self._writer.hand_over(report, answer)

    async def finish(self, project: str, run: str, attempt: int) -> answers.FinishAnswer:
        """Mark an attempt finished; idempotent."""
        await self._writer.call(lambda store: store.finish(project, run, attempt))
        return {"project": project, "run": run, "attempt": attempt, "finished": True}

    async def delete(self, project: str, run: str) -> answers.DeleteAnswer:
        """Forget a run."""
        await self._writer.call(lambda store: store.delete(project, run))
        return {"project": project, "run": run, "deleted": True}

    async def projects(self, *, limit: int, after: str | None) -> answers.ProjectsAnswer:
        """List projects by name."""

        def read(store: Store) -> answers.ProjectsAnswer:
            counts: dict[str, int] = {}
            for project, _ in store.names():
                counts[project] = counts.get(project, 0) + 1
            names, more = _page(counts, limit, after, str)
            return {
                "items": [{"project": name, "runs": counts[name]} for name in names],
                "next": more,
            }

        return await self._writer.call(read)

    async def runs(self, project: str, *, limit: int, after: str | None) -> answers.RunsAnswer:
        """List the runs of a project by name; an unknown project has none.

        What is damaged is named apart: it must hide no other run.
        """

        def read(store: Store) -> answers.RunsAnswer:
            names = [run for owner, run in store.names() if owner == project]
            shown, more = _page(names, limit, after, str)
            page: answers.RunsAnswer = {"items": [], "next": more}
            for run in shown:
                try:
                    page["items"].append(self._judge.run(store.run(project, run)))
                except StoreDamaged:
                    page.setdefault("damaged", []).append({"project": project, "run": run})
            return page

        return await self._writer.call(read)

    async def run(self, project: str, run: str) -> answers.RunAnswer:
        """Describe one run."""
        return await self._writer.call(lambda store: self._judge.run(store.run(project, run)))

    async def totals(
        self, project: str, run: str, *, attempts: Attempts, rank: int | None
    ) -> answers.TotalsAnswer:
        """Return every key of a run with what it was folded from."""

        def read(store: Store) -> answers.TotalsAnswer:
            ledger = store.run(project, run)
            keys = present.keys(ledger.facts, ledger.totals(attempts, rank))
            return {
                "project": project,
                "run": run,
                "attempts": attempts,
                "rank": rank,
                "keys": {key.name: present.key_answer(key) for key in keys},
            }

        return await self._writer.call(read)

    async def iterations(
        self,
        project: str,
        run: str,
        selection: Selection,
        *,
        keys: tuple[str, ...],
        rank: int | None,
        limit: int,
        after: int | None,
    ) -> answers.IterationsAnswer:
        """Return the keys' values per iteration, ascending."""
        if after is not None:
            selection = replace(selection, first=max(after + 1, selection.first or 0))

        def read(store: Store) -> answers.IterationsAnswer:
            ledger = store.run(project, run)
            found = iterations(ledger, selection, rank, limit + 1)
            return {
                "items": [
                    {
                        "iteration": item.iteration,
                        "complete": item.complete,
                        "keys": present.values(present.keys(ledger.facts, item.table), keys),
                    }
                    for item in found[:limit]
                ],
                "next": found[limit - 1].iteration if len(found) > limit else None,
            }

        return await self._writer.call(read)

    async def ranks(
        self, project: str, run: str, *, attempts: Attempts, limit: int, after: int | None
    ) -> answers.RanksAnswer:
        """Return each rank's totals and what it owes."""

        def read(store: Store) -> answers.RanksAnswer:
            ledger = store.run(project, run)
            shown, more = _ranks(ledger, attempts, limit, after)
            owed, until = missing_by_rank(ledger, Selection(attempts=attempts), shown)
            return {
                "items": [_rank(ledger, attempts, rank, owed[rank]) for rank in shown],
                "missing_until": until,
                "next": more,
            }

        return await self._writer.call(read)

    async def worst(
        self,
        project: str,
        run: str,
        *,
        series: tuple[str, ...],
        attempts: Attempts,
        limit: int,
        after: int | None,
    ) -> answers.WorstsAnswer:
        """Return the worst tokens, largest first."""

        def read(store: Store) -> answers.WorstsAnswer:
            table = store.run(project, run).totals(attempts)
            found = list(present.worst(present.selected(table, series)))
            start = 0 if after is None else after + 1
            end = start + limit
            return {"items": found[start:end], "next": end - 1 if end < len(found) else None}

        return await self._writer.call(read)

    async def gate(
        self, project: str, run: str, selection: Selection, policy: Policy
    ) -> answers.GateAnswer:
        """Return the verdict on a run, and why."""
        return await self._writer.call(
            lambda store: self._judge.gate(store.run(project, run), selection, policy)
        )

    async def look(self) -> dict[Name, Lines]:
        """Return the lines of the runs that the gauges show, by project and name, in order."""
        return await self._lookout.look()

    @property
    def damaged(self) -> int:
        """How many runs the last look had to leave out, for what the store has is damaged."""
        return self._lookout.damaged

    async def forget(self) -> list[tuple[str, str]]:
        """Delete the runs that the operator does not want to keep; return their names."""

        def tidy(store: Store) -> list[tuple[str, str]]:
            return forget(store, self._retention, self._now(), self._judge.running)

        return await self._writer.call(tidy) if self._retention.on else []

    async def probe(self) -> None:
        """Write something durable, as a report would be.

        Raises:
            StoreUnavailable: that failed, or took too long.
        """
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                await self._writer.call(lambda store: store.probe())
        except TimeoutError as error:
            raise StoreUnavailable(f"no write in {PROBE_TIMEOUT} seconds") from error


def _page(
    things: Iterable[T], limit: int, after: Any, name: Callable[[T], Any]
) -> tuple[list[T], Any]:
    """Return the things after a name in order, and the name to go on after, or None."""
    ordered = sorted(things, key=name)
    rest = [thing for thing in ordered if after is None or name(thing) > after]
    return rest[:limit], name(rest[limit - 1]) if len(rest) > limit else None


def _ranks(
    ledger: Ledger, attempts: Attempts, limit: int, after: int | None
) -> tuple[list[int], int | None]:
    """Return a page of the ranks that are expected or have reported; the world may be huge."""
    chosen = ledger.chosen(attempts)
    expected = range(chosen[-1].launch.world_size or 0)
    others = {rank for attempt in chosen for rank in attempt.reporters if rank not in expected}
    start = 0 if after is None else after + 1
    rest = chain(expected[start:], sorted(rank for rank in others if rank >= start))
    found = list(islice(rest, limit + 1))
    return found[:limit], found[limit - 1] if len(found) > limit else None


def _rank(ledger: Ledger, attempts: Attempts, rank: int, owed: list[Missing]) -> answers.RankAnswer:
    """Describe a rank by the latest of the chosen attempts in which it has reported."""
    chosen = ledger.chosen(attempts)
    attempt = next((a for a in reversed(chosen) if rank in a.reporters), chosen[-1])
    reporter = attempt.reporters.get(rank)
    return {
        "rank": rank,
        "attempt": attempt.number,
        "last_iteration": reporter.last_iteration if reporter else None,
        "last_report": reporter.last_report if reporter else None,
        "dropped": reporter.dropped if reporter else 0,
        "missing": [present.missing(m) for m in owed],
        "keys": present.values(present.keys(ledger.facts, ledger.totals(attempts, rank)), ()),
    }
