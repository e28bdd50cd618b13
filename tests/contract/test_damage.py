"""What is damaged in a store is refused, by name, and costs nothing else: alike in every store."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial as partially
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from contract.stores import RULES, Ground, Opener, new_ground, postgres, sqlite_busy
from rankfold.answers import RunsAnswer
from rankfold.audit import audit
from rankfold.errors import RankfoldError, StoreDamaged
from rankfold.wire import Receipt, Report
from rankfold_service.aggregate import Aggregator
from rankfold_service.judge import Ages
from rankfold_service.retention import Retention
from rankfold_service.store import Arrival, Store
from rankfold_service.store.postgres import known
from rankfold_service.writer import Writer
from support.postgres import needs_postgres
from support.reports import SERIES, partial, report

# Cuts a column's last byte off; of these tables and columns.
CUT = "UPDATE {0} SET {1} = substr({1}, 1, length({1}) - 1) WHERE {2}"
ID = "(SELECT id FROM run WHERE name = 'run')"
PAGES = {sqlite_busy: ("page", "body"), postgres: ("page", "folded")}
HEADS = {sqlite_busy: ("run", "head"), postgres: ("run", "facts")}


class Place(NamedTuple):
    """Where a store is, between two starts of it."""

    opener: Opener
    ground: Ground

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Open it as a start does: nothing is in memory yet."""
        with closing(self.opener(self.ground)) as store:
            yield store

    def change(self, statement: str) -> None:
        """Do what a disk or a hand does to what is kept."""
        if self.opener is postgres:
            with psycopg.connect(self.ground.url, autocommit=True) as connection:
                connection.execute(statement.encode())
        else:
            with closing(sqlite3.connect(self.ground.folder / "store.db")) as file, file:
                file.execute(statement)


@pytest.fixture(params=[sqlite_busy, pytest.param(postgres, marks=needs_postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Return where a store of each kind is that brings its tables up to date at every turn."""
    monkeypatch.setattr(known, "MOST_JOURNALED", 1)
    return Place(request.param, new_ground(request, request.param, tmp_path))


def take(store: Store, *taken: Report) -> list[object]:
    """Hand reports over in one commit, with the housekeeping that follows on it."""
    outcomes = store.ingest([Arrival(r, 1.0) for r in taken])
    store.maintain()
    return list(outcomes)


def one(iteration: int, run: str = "run") -> Report:
    """Return a report of one partial, by the only rank."""
    rows = [partial(iteration=iteration)]
    commits = [{"iteration": iteration, "microbatches": 1}]
    return report(run=run, world_size=1, partials=rows, commits=commits)


def test_damaged_page_refuses_only_the_report_that_needs_it(place: Place) -> None:
    """Of one commit the others are taken, and of that one nothing is."""
    with place.store() as store:
        take(store, *(one(i, run) for i in range(3) for run in ("run", "other")))
    table, column = PAGES[place.opener]
    place.change(CUT.format(table, column, f"iteration = 0 AND run_id = {ID}"))
    with place.store() as store:
        receipt, damaged, twice, later = take(
            store,
            one(1),
            report(partials=[partial(iteration=5), partial(iteration=0, microbatch=7)]),
            one(1, "other"),
            one(3),
        )
        assert (receipt, twice, later) == (Receipt(0, 1, 0), Receipt(0, 1, 0), Receipt(1, 0, 0))
        assert isinstance(damaged, StoreDamaged)
        assert "run 'run'" in str(damaged)
        assert "at iteration 0 of attempt 0: restore the store from a backup" in str(damaged)
        ledger = store.run("default", "run")
        assert ledger.totals("all").series[SERIES].partials == 4
        assert list(ledger.latest.paged) == [0, 1, 2, 3]
        assert list(audit(store.run("default", "other"))) == []


def test_list_of_runs_names_apart_what_is_damaged(place: Place) -> None:
    """One run that cannot be read hides no other."""
    with place.store() as store:
        in_progress = report(world_size=1, partials=[partial(iteration=0)])
        take(store, one(0, "other"), in_progress, one(1))
    table, column = PAGES[place.opener]
    place.change(CUT.format(table, column, f"iteration = 0 AND run_id = {ID}"))
    page = asyncio.run(_runs(place.opener(place.ground)))
    assert [item["run"] for item in page["items"]] == ["other"]
    assert page["damaged"] == [{"project": "default", "run": "run"}]
    assert page["next"] is None


def test_run_that_cannot_be_read_at_all_costs_no_other(place: Place) -> None:
    """What concerns it is refused until it is deleted, also at another start; then it is anew."""
    with place.store() as store:
        take(store, *(one(i, run) for i in range(3) for run in ("run", "other")))
    table, column = HEADS[place.opener]
    place.change(CUT.format(table, column, "name = 'run'"))
    for iteration in (3, 4):
        with place.store() as store:
            assert take(store, one(iteration, "other")) == [Receipt(1, 0, 0)]
            for refused in (
                partially(refuse, store, one(iteration)),
                partially(store.run, "default", "run"),
                partially(store.finish, "default", "run", 0),
            ):
                with pytest.raises(StoreDamaged, match=r"run 'run'.* is damaged: restore the st"):
                    refused()
            names = [("default", "other"), ("default", "run")]
            assert (store.names(), sorted(store.versions())) == (names, names)
    page = asyncio.run(_runs(place.opener(place.ground)))
    assert [item["run"] for item in page["items"]] == ["other"]
    assert page["damaged"] == [{"project": "default", "run": "run"}]
    with place.store() as store:
        store.delete("default", "run")
        assert store.names() == [("default", "other")]
    with place.store() as store:
        assert take(store, one(9)) == [Receipt(1, 0, 0)]
    with place.store() as store:
        assert store.run("default", "run").totals("all").series[SERIES].partials == 1
        assert store.run("default", "other").totals("all").series[SERIES].partials == 5
        for name in store.names():
            assert list(audit(store.run(*name))) == []


def refuse(store: Store, refused: Report) -> None:
    """Raise why a report is not taken, whether that is its own outcome or its commit's."""
    for outcome in take(store, refused):
        if isinstance(outcome, RankfoldError):
            raise outcome


async def _runs(store: Store) -> RunsAnswer:
    writer = Writer(store)
    writer.start()
    aggregator = Aggregator(writer, RULES, Ages(), Retention(), lambda: 1.0)
    try:
        return await aggregator.runs("default", limit=10, after=None)
    finally:
        await asyncio.to_thread(writer.close)
