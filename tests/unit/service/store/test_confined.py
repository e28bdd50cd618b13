"""A run that cannot be read costs no other, and waits with its journal until it is put right."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.answering import about, everything
from rankfold.audit import audit
from rankfold.errors import NotFound, StoreDamaged, StoreUnavailable
from rankfold.wire import Receipt, Report
from rankfold_service.retention import Retention, forget
from rankfold_service.store import Arrival, Store
from rankfold_service.store.record import unpack_all
from rankfold_service.store.sqlite import SqliteStore
from support.reports import SERIES, partial, report
from unit.service.store.saved_often import (
    new_reference,
    one,
    open_store,
    operations,
    save_next,
)

X = ("default", "x")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the store lives."""
    return tmp_path / "store.db"


def take(store: Store, *taken: Report) -> list[object]:
    """Hand reports over in one commit, with the housekeeping that follows on it."""
    outcomes = store.ingest([Arrival(each, 1.0) for each in taken])
    store.maintain()
    return list(outcomes)


def change(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    """Do to a store's file what a disk or a hand does; return what it answers."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()


def damage(path: Path, run: str = "x") -> bytes:
    """Cut the head of a run off; return what it was."""
    ((head,),) = change(path, "SELECT head FROM run WHERE name = ?", run)
    assert isinstance(head, bytes)
    change(path, "UPDATE run SET head = ? WHERE name = ?", head[: len(head) // 2], run)
    return head


def restore(path: Path, head: bytes, run: str = "x") -> None:
    """Put the head of a run back."""
    change(path, "UPDATE run SET head = ? WHERE name = ?", head, run)


def journal(path: Path) -> dict[int, list[str]]:
    """Return of which runs each row of the journal has something."""
    found = change(path, "SELECT seq, records FROM journal ORDER BY seq")
    return {int(str(n)): [e.report.run for e in unpack_all(bytes(r))] for n, r in found}  # type: ignore[call-overload]


def left_behind(path: Path, *behind: Report) -> SqliteStore:
    """Return a store with "x" and "y" in the tables, and reports in the journal only."""
    store = open_store(path, 1 << 30)
    take(store, one("x"), one("y"))
    store.checkpoint()
    for each in behind:
        take(store, each)
    return store


DAMAGE = {
    "gone": "UPDATE run SET head = x'' WHERE name = 'x'",
    "zeros": "UPDATE run SET head = zeroblob(100) WHERE name = 'x'",
    "text": "UPDATE run SET head = CAST('xxxxxxxxxxxx' AS BLOB) WHERE name = 'x'",
    "cut": "UPDATE run SET head = substr(head, 1, length(head) - 1) WHERE name = 'x'",
    "flipped": "UPDATE run SET head = CAST(substr(head, 1, 20) || x'ff' || substr(head, 22) "
    "AS BLOB) WHERE name = 'x'",
    "a page's": "UPDATE run SET head = (SELECT body FROM page LIMIT 1) WHERE name = 'x'",
}


@pytest.mark.parametrize("how", DAMAGE.values(), ids=DAMAGE.keys())
def test_run_whose_head_is_damaged_costs_no_other(
    path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A start says which it is, once; what concerns it is refused, all else goes on."""
    store = open_store(path)
    for rank in range(3):
        commits = [{"iteration": 0, "microbatches": 1}]
        take(store, report(run="x", rank=rank, partials=[partial()], commits=commits))
    take(store, one("y"))
    store.close()
    change(path, how)
    store = open_store(path)
    told = [record for record in caplog.records if "a run is left aside" in record.getMessage()]
    assert [(r.levelno, r.__dict__["project"], r.__dict__["run"]) for r in told] == [
        (logging.ERROR, "default", "x")
    ]
    assert store.names() == [X, ("default", "y")]
    assert list(store.versions()) == store.names()
    other = store.run("default", "y")
    refused, receipt, again = take(store, one("x", 1), one("y", 1), one("x"))
    assert receipt == Receipt(1, 0, 0)
    for refusal in (refused, again):
        assert isinstance(refusal, StoreDamaged)
    with pytest.raises(StoreDamaged, match=r"run 'x' in .* is damaged: restore .* or delete the"):
        store.run("default", "x")
    with pytest.raises(StoreDamaged):
        store.finish("default", "x", 0)
    # Nothing of that made the store distrust its memory.
    assert store.run("default", "y") is other
    store.close()


def test_head_of_another_run_is_found_by_an_audit(path: Path) -> None:
    """It is undamaged in itself, but it is not what its pages fold to."""
    store = open_store(path)
    take(store, one("x", 0, valid=3), one("y", 0, valid=5))
    store.close()
    change(path, "UPDATE run SET head = (SELECT head FROM run WHERE name = 'y') WHERE name = 'x'")
    store = open_store(path)
    assert [*audit(store.run("default", "y"))] == []
    assert [*audit(store.run("default", "x"))] != []
    store.close()


def test_deleted_run_is_gone_for_good_and_may_begin_afresh(path: Path) -> None:
    """At once, after a kill before anything was saved, and after it was; nothing of it is left."""
    store = left_behind(path, one("x", 1), one("y", 1))
    store.file.close()
    damage(path)
    store = open_store(path, 1 << 30)
    store.delete("default", "x")
    assert store.names() == [("default", "y")]
    with pytest.raises(NotFound):
        store.delete("default", "x")
    store.file.close()
    store = open_store(path, 1 << 30)
    assert store.names() == [("default", "y")]
    assert take(store, one("x", 5, valid=3)) == [Receipt(1, 0, 0)]
    for _ in range(2):
        totals = store.run("default", "x").totals("all").series[SERIES]
        assert (totals.partials, totals.valid) == (1, 3)
        store.close()
        assert journal(path) == {}
        assert change(path, "SELECT count(*) FROM page JOIN run ON id = run_id") == [(3,)]
        store = open_store(path)
    store.close()


def test_journal_keeps_of_a_confined_run_what_its_row_lacks_and_no_more(path: Path) -> None:
    """Under their numbers, whatever the others do; a start that can read the run replays them."""
    store = left_behind(path, one("y", 1), one("x", 1), one("y", 2), one("x", 2, valid=3))
    take(store, one("x", 3), one("y", 3))
    store.file.close()
    head = damage(path)
    for start in range(3):
        store = open_store(path)
        statements: list[str] = []
        store.file.connection.set_trace_callback(statements.append)
        for i in range(20):
            assert take(store, one("y", 10 + 20 * start + i)) == [Receipt(1, 0, 0)]
        store.checkpoint()
        # Once, however many times the rest of the journal is let go of.
        assert sum(s.startswith("INSERT INTO journal") for s in statements) == 20 + 3
        assert journal(path) == {3: ["x"], 5: ["x"], 6: ["x"]}
        store.file.close() if start else store.close()
    restore(path, head)
    store = open_store(path)
    totals = store.run("default", "x").totals("all").series[SERIES]
    assert (totals.partials, totals.valid) == (4, 27)
    assert take(store, one("x", 2, valid=3), one("x", 4)) == [Receipt(0, 1, 0), Receipt(1, 0, 0)]
    store.close()
    assert journal(path) == {}


def test_rows_of_the_journal_are_numbered_on_beyond_what_is_kept(path: Path) -> None:
    """The newest row may be in the tables by now, and what is kept be far below it."""
    store = left_behind(path, one("x", 1))
    store.file.close()
    damage(path)
    store = open_store(path)
    for i in range(1, 30):
        take(store, one("y", i))
    store.close()
    assert journal(path) == {2: ["x"]}
    for start in range(2):
        store = open_store(path, 1 << 30)
        assert take(store, one("y", 30 + start)) == [Receipt(1, 0, 0)]
        store.file.close()
    store = open_store(path)
    assert store.run("default", "y").totals("all").series[SERIES].partials == 32
    store.close()


def test_retention_deletes_others_and_leaves_a_confined_run(path: Path) -> None:
    """Nobody can tell how old it is; what its journal has stays, whatever goes around it."""
    store = left_behind(path, one("x", 1), one("y", 1))
    store.file.close()
    head = damage(path)
    store = open_store(path)
    for limits in (Retention(age=1.0), Retention(size=1)):
        take(store, one("y", 2))
        assert forget(store, limits, 100.0, lambda _: False) == [("default", "y")]
        assert store.names() == [X]
    store.close()
    restore(path, head)
    store = open_store(path)
    assert store.run("default", "x").totals("all").series[SERIES].partials == 2
    store.close()


def test_one_of_two_confined_runs_is_deleted_and_the_other_restored(path: Path) -> None:
    """What they have in the same rows is told apart."""
    store = left_behind(path)
    take(store, one("x", 1), one("y", 1), one("z"))
    take(store, one("y", 2), one("z", 1), one("x", 2))
    store.file.close()
    damage(path)
    head = damage(path, "y")
    store = open_store(path)
    for i in range(5):
        take(store, one("z", 10 + i))
    store.checkpoint()
    assert journal(path) == {2: ["x", "y"], 3: ["y", "x"]}
    store.delete("default", "x")
    store.checkpoint()
    assert journal(path) == {2: ["y"], 3: ["y"]}
    store.close()
    restore(path, head, "y")
    store = open_store(path)
    assert store.names() == [("default", "y"), ("default", "z")]
    assert store.run("default", "y").totals("all").series[SERIES].partials == 3
    assert store.run("default", "z").totals("all").series[SERIES].partials == 7
    store.close()


def test_run_whose_journal_meets_a_damaged_page_is_confined(path: Path) -> None:
    """What was acknowledged cannot be entered, so nothing is answered, until the page is back."""
    store = left_behind(path, one("x", 3), one("y", 3))
    take(store, one("y", 4), one("x", 4), one("x", 5))
    take(store, report(run="x", partials=[partial(iteration=0, microbatch=1)]), one("x", 6))
    take(store, one("x", 7))
    reference = about(store.run("default", "x"))
    store.file.close()
    ((id_, body),) = change(
        path, "SELECT id, body FROM page JOIN run ON id = run_id AND name = 'x'"
    )
    spoil = "UPDATE page SET body = ? WHERE run_id = ? AND iteration = 0"
    change(path, spoil, b"\0", id_)
    store = open_store(path)
    with pytest.raises(StoreDamaged, match=r"run 'x' in .* is damaged at iteration 0 of attempt 0"):
        store.run("default", "x")
    assert store.run("default", "y").totals("all").series[SERIES].partials == 3
    for i in range(10):
        take(store, one("y", 10 + i))
    store.close()
    assert journal(path) == {2: ["x"], 4: ["x", "x"], 5: ["x", "x"], 6: ["x"]}
    change(path, spoil, body, id_)
    store = open_store(path)
    assert about(store.run("default", "x")) == reference
    store.close()


def test_save_that_fails_loses_nothing_that_is_kept(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is read again, which tells of the run no second time."""
    store = left_behind(path, one("x", 1), one("y", 1))
    store.file.close()
    head = damage(path)
    store = open_store(path)
    store.file.connection.execute("PRAGMA busy_timeout = 0")
    with closing(sqlite3.connect(path)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="SQLITE_BUSY"):
            store.checkpoint()
        with pytest.raises(StoreUnavailable, match="SQLITE_BUSY"):
            store.delete("default", "x")
    assert store.names() == [X, ("default", "y")]
    take(store, one("y", 2))
    store.close()
    assert caplog.text.count("a run is left aside") == 1
    assert journal(path) == {2: ["x"]}
    restore(path, head)
    store = open_store(path)
    assert store.run("default", "x").totals("all").series[SERIES].partials == 2
    store.close()


# Of the run that is damaged seldom, so that there is something to restore.
OPERATIONS = operations(deleted="yyx")


class Damaged:
    """A store that loses the head of "x" and gets it back, beside one that tells what is right."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reference = new_reference()
        self.store = open_store(path)
        self.head: bytes | None = None
        for each in (self.store, self.reference):
            take(each, one("x", 0, series="a"))

    def damage(self) -> None:
        """Kill it and damage the head of "x", if the tables have one."""
        self.store.file.close()
        if change(self.path, "SELECT 1 FROM run WHERE name = 'x'"):
            self.head = damage(self.path)
        self.store = open_store(self.path)
        if X in self.store.ledgers or X not in self.store.names():
            self.head = None  # the journal says that the run was deleted since

    def restore(self) -> None:
        """Kill it, put the head back unless the run was deleted, and start it."""
        self.store.file.close()
        if self.head is not None:
            restore(self.path, self.head)
            self.head = None
        self.store = open_store(self.path)

    def carry_out(self, operation: object) -> None:
        """Carry an operation out; what concerns "x" while it is damaged is refused."""
        store = self.store
        match operation:
            case Report():
                (outcome,) = store.ingest([Arrival(operation, 1.0)])
                if operation.run == "x" and self.head is not None:
                    assert isinstance(outcome, StoreDamaged)
                else:
                    (expected,) = self.reference.ingest([Arrival(operation, 1.0)])
                    assert repr(outcome) == repr(expected)
            case ("finish", "x", int(attempt)) if self.head is not None:
                with pytest.raises(StoreDamaged):
                    store.finish("default", "x", attempt)
            case ("finish", str(run), int(attempt)):
                for each in (store, self.reference):
                    with suppress(NotFound):
                        each.finish("default", run, attempt)
            case ("delete", str(run)):
                for each in (store, self.reference):
                    with suppress(NotFound):
                        each.delete("default", run)
                self.head = None if run == "x" else self.head
            case "step":
                store.maintain()
            case "save":
                save_next(store)
            case "checkpoint":
                store.checkpoint()
            case _:
                store.close() if operation == "close" else store.file.close()
                self.store = open_store(self.path)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(OPERATIONS, max_size=15),
    st.lists(OPERATIONS, max_size=15),
    st.lists(OPERATIONS, max_size=5),
)
def test_restored_run_is_what_was_acknowledged(
    before: Sequence[object], meanwhile: Sequence[object], after: Sequence[object]
) -> None:
    """Whatever is reported, finished, deleted, saved, killed and started again meanwhile."""
    with TemporaryDirectory() as folder:
        tried = Damaged(Path(folder) / "store.db")
        try:
            for operation in before:
                tried.carry_out(operation)
            tried.damage()
            for operation in meanwhile:
                tried.carry_out(operation)
            assert tried.store.names() == tried.reference.names()
            tried.restore()
            for operation in after:
                tried.carry_out(operation)
            store = tried.store
            assert repr(everything(store)) == repr(everything(tried.reference))
            assert [f for name in store.names() for f in audit(store.run(*name))] == []
            store.checkpoint()
            assert journal(tried.path) == {}
        finally:
            tried.store.file.close()
