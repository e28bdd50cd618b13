"""Small stores that are saved after every commit, and what may happen to them."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from rankfold.rules import RuleSet
from rankfold.wire import Report
from rankfold_service.store.memory import MemoryStore
from rankfold_service.store.sqlite import SqliteStore
from support.reports import partial, report, reports

KEEP = 2


def open_store(path: Path, checkpoint_bytes: int = 1) -> SqliteStore:
    """Open a store that saves after every commit, unless told otherwise."""
    return SqliteStore(path, RuleSet(), checkpoint_bytes=checkpoint_bytes, keep_iterations=KEEP)


def save_next(store: SqliteStore) -> None:
    """Save the runs whose turn it is, however many commits that would go on for."""
    store.maintain()
    while store._saver._steps:
        store.maintain()


def new_reference() -> MemoryStore:
    """Return the store that tells what is right."""
    return MemoryStore(RuleSet(), keep_iterations=KEEP)


def one(run: str, iteration: int = 0, **fields: object) -> Report:
    """Return a report of one partial."""
    return report(run=run, partials=[partial(iteration=iteration, **fields)])


def operations(deleted: str = "xy") -> st.SearchStrategy[object]:
    """Return what draws an operation on the runs "x" and "y"; a delete is of one of `deleted`."""
    return st.one_of(
        reports(),
        reports(),
        st.tuples(st.just("finish"), st.sampled_from("xy"), st.integers(0, 1)),
        st.tuples(st.just("delete"), st.sampled_from(deleted)),
        st.sampled_from(["step", "step", "save", "save", "kill", "close", "checkpoint"]),
    )
