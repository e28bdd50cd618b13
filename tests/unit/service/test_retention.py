"""Runs are forgotten by age and by size, the longest silent first, and only if asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankfold.errors import StoreDamaged
from rankfold.ledger import Ledger
from rankfold.rules import RuleSet
from rankfold_service.judge import Ages, Judge
from rankfold_service.retention import Retention, forget
from rankfold_service.store import Arrival, Store
from rankfold_service.store.memory import MemoryStore
from rankfold_service.store.sqlite import SqliteStore
from support.reports import partial, report

NOW = 10_000.0


def running(ledger: Ledger) -> bool:
    """Say whether a run reported within the last hundred seconds and is not finished."""
    return Judge(Ages(stale=100.0), lambda: NOW).running(ledger)


def fill(store: Store, *runs: tuple[str, float]) -> None:
    """Report runs, each with when it was heard of last."""
    for run, when in runs:
        rows = [partial(iteration=i, microbatch=m) for i in range(20) for m in range(20)]
        store.ingest([Arrival(report(run=run, partials=rows), when)])


def names(store: Store) -> list[str]:
    """Return the runs that are left."""
    return [run for _, run in store.names()]


def test_retention_is_off_by_default() -> None:
    """Without a limit nothing is ever forgotten."""
    store = MemoryStore(RuleSet())
    fill(store, ("old", 0.0))
    assert not Retention().on
    assert forget(store, Retention(), NOW, running) == []
    assert names(store) == ["old"]


def test_retention_by_age_forgets_what_was_silent_for_longer() -> None:
    """Exactly the runs beyond the age go, whether finished or stale."""
    store = MemoryStore(RuleSet())
    fill(store, ("older", 10.0), ("old", 4999.0), ("young", 5000.0), ("now", NOW))
    store.finish("default", "old", 0)
    gone = forget(store, Retention(age=5000.0), NOW, running)
    assert gone == [("default", "older"), ("default", "old")]
    assert names(store) == ["now", "young"]


def test_retention_never_forgets_a_running_run() -> None:
    """However small the limits, what still reports stays."""
    store = MemoryStore(RuleSet())
    fill(store, ("busy", NOW - 50.0))
    assert forget(store, Retention(age=1.0, size=1), NOW, running) == []
    assert names(store) == ["busy"]


def test_retention_leaves_what_is_damaged() -> None:
    """Nobody can tell how old it is; the others go."""

    class Damaged(MemoryStore):
        def run(self, project: str, run: str) -> Ledger:
            if run == "damaged":
                raise StoreDamaged("it is damaged")
            return super().run(project, run)

    store = Damaged(RuleSet())
    fill(store, ("damaged", 0.0), ("old", 0.0))
    assert forget(store, Retention(age=1.0), NOW, running) == [("default", "old")]
    assert names(store) == ["damaged"]


def test_retention_by_size_forgets_the_longest_silent_until_it_fits(tmp_path: Path) -> None:
    """The store shrinks below the limit, at the cost of the oldest runs only."""
    store = SqliteStore(tmp_path / "store.db", RuleSet())
    fill(store, *((f"run-{i}", float(i)) for i in range(6)))
    limit = store.size() - 1
    gone = forget(store, Retention(size=limit), NOW, running)
    assert gone == [("default", f"run-{i}") for i in range(len(gone))]
    assert 1 <= len(gone) < 6
    assert store.size() <= limit
    assert forget(store, Retention(size=limit), NOW, running) == []
    store.close()


def test_retention_by_size_holds_nobody_up_while_all_fits(tmp_path: Path) -> None:
    """What reports left in the journal stays there, unless the tables alone are too much."""
    store = SqliteStore(tmp_path / "store.db", RuleSet())
    fill(store, *((f"run-{i}", float(i)) for i in range(6)))
    waiting = "SELECT count(*) FROM journal"
    assert forget(store, Retention(size=1_000_000), NOW, running) == []
    assert store.file.connection.execute(waiting).fetchone() == (6,)
    assert forget(store, Retention(size=1), NOW, running) == [
        ("default", f"run-{i}") for i in range(6)
    ]
    store.close()


@pytest.mark.parametrize(
    ("silence", "finished", "state", "shown"),
    [
        (0.0, False, "running", True),
        (3600.0, False, "running", True),
        (3601.0, False, "stale", True),
        (86400.0, False, "stale", True),
        (86401.0, False, "stale", False),
        (3600.0, True, "finished", True),
        (3601.0, True, "finished", False),
    ],
)
def test_run_goes_through_its_life(silence: float, finished: bool, state: str, shown: bool) -> None:
    """Silence makes a run stale and takes it off the gauges; a late report brings it back whole."""
    store = MemoryStore(RuleSet())
    fill(store, ("run", 0.0))
    if finished:
        store.finish("default", "run", 0)
    judge = Judge(Ages(), lambda: silence)
    ledger = store.run("default", "run")
    assert (judge.state(ledger), judge.shown(ledger)) == (state, shown)
    before = ledger.totals("all").series
    store.ingest([Arrival(report(run="run"), silence)])
    assert judge.shown(ledger)
    assert ledger.totals("all").series == before
