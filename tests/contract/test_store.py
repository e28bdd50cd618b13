"""The promises of the port, kept by every store in the same way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.answering import everything
from contract.stores import DURABLE, OPENERS, RULES, Opener, new_ground, reopened
from rankfold.coverage import Selection
from rankfold.errors import Inconsistent, NotFound
from rankfold.gate import Policy
from rankfold.wire import Receipt, Report
from rankfold_service import present
from rankfold_service.judge import Ages, Judge
from rankfold_service.store import Arrival, Store
from rankfold_service.store.memory import MemoryStore
from support.reports import SERIES, partial, report, reports

CASES = json.loads((Path(__file__).parents[1] / "cases" / "folds.json").read_text())


@pytest.fixture(params=OPENERS, ids=lambda opener: opener.__name__)
def opener(request: pytest.FixtureRequest) -> Opener:
    """Yield what opens each kind of store."""
    chosen: Opener = request.param
    return chosen


@pytest.fixture
def store(request: pytest.FixtureRequest, opener: Opener, tmp_path: Path) -> Iterator[Store]:
    """Yield an empty store of each kind."""
    opened = opener(new_ground(request, opener, tmp_path))
    yield opened
    opened.close()


def take(store: Store, *taken: Report) -> list[object]:
    """Hand reports over in one commit, with the housekeeping that follows on it."""
    outcomes = store.ingest([Arrival(r, float(i)) for i, r in enumerate(taken)])
    store.maintain()
    return list(outcomes)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_store_answers_the_case_as_expected(store: Store, case: dict) -> None:
    """Each case from a public bug report gives its right totals and verdict."""
    take(store, *(report(run="case", **body) for body in case["reports"]))
    ledger = store.run("cases", "case")
    keys = {key.name: key.value for key in present.keys(ledger.facts, ledger.totals("effective"))}
    assert keys == case["expect"]["keys"]
    if "gate" in case["expect"]:
        gate = Judge(Ages(), lambda: 0.0).gate(ledger, Selection(attempts="all"), Policy())
        assert gate["gate"] == case["expect"]["gate"]


def test_store_counts_a_copy_once(store: Store) -> None:
    """A copy is a duplicate, whether in the same commit or in a later one."""
    one = report(partials=[partial(count=1, max=0.5, sum=0.5)])
    assert take(store, one, one) == [Receipt(1, 0, 0), Receipt(0, 1, 0)]
    assert take(store, one) == [Receipt(0, 1, 0)]
    assert store.run("default", "run").totals("all").series[SERIES].count == 1


def test_store_refuses_a_report_whole_and_takes_its_neighbours(store: Store) -> None:
    """A report that contradicts its run leaves no trace, not even of a run; others are taken."""
    good = report(run="good", world_size=2, partials=[partial()])
    bad = report(run="good", world_size=3, partials=[partial(microbatch=1)])
    strange = report(run="bad", rank=4, world_size=4, partials=[partial()])
    first, second, third = take(store, good, bad, strange)
    assert first == Receipt(1, 0, 0)
    assert isinstance(second, Inconsistent)
    assert isinstance(third, Inconsistent)
    assert store.names() == [("default", "good")]
    assert store.run("default", "good").totals("all").series[SERIES].partials == 1


def test_store_lists_runs_by_project_and_name(store: Store) -> None:
    """Runs come sorted; an empty report makes one known."""
    take(store, report(run="b"), report(run="a"), report(project="other", run="0"))
    assert store.names() == [("default", "a"), ("default", "b"), ("other", "0")]


def test_store_finishes_an_attempt_once_and_again(store: Store) -> None:
    """Finishing is idempotent, and only for attempts that have reported."""
    take(store, report())
    for _ in range(2):
        store.finish("default", "run", 0)
    assert store.run("default", "run").finished
    with pytest.raises(NotFound):
        store.finish("default", "run", 1)
    with pytest.raises(NotFound):
        store.finish("default", "other", 0)


def test_store_forgets_a_deleted_run_and_starts_it_anew(store: Store) -> None:
    """After a delete the same identity is new again, and nothing of before shines through."""
    take(store, report(partials=[partial(iteration=i) for i in range(40)]))
    store.delete("default", "run")
    with pytest.raises(NotFound):
        store.run("default", "run")
    with pytest.raises(NotFound):
        store.delete("default", "run")
    assert take(store, report(partials=[partial(iteration=3)])) == [Receipt(1, 0, 0)]
    assert store.run("default", "run").totals("all").series[SERIES].partials == 1
    assert list(store.run("default", "run").latest.paged) == [3]


def test_store_has_another_version_of_a_run_after_each_change(store: Store) -> None:
    """And the same one as long as nothing is told of it, whatever is told of others."""
    found: list[object] = []

    def changed(*taken: Report) -> None:
        take(store, *taken)
        versions = store.versions()
        assert [*versions] == store.names()
        found.append(versions["default", "run"])

    changed(report(world_size=2))
    changed(report(partials=[partial()]))
    changed(report(rank=1, partials=[partial()]))
    changed(report(attempt=1))
    changed(report(scalars=[{"key": "lr", "value": 1.0, "global": True}]))
    store.finish("default", "run", 0)
    changed(report(run="other"))
    assert len({*found}) == len(found)
    changed(report(run="another"))
    assert found.pop() == found[-1]
    store.delete("default", "run")
    assert [*store.versions()] == [("default", "another"), ("default", "other")]
    changed(report(world_size=2))
    assert len({*found}) == len(found)


def test_store_that_read_ahead_answers_as_without(store: Store) -> None:
    """What was read ahead is the newest, once; what came, went or is not there is told too."""
    names = [("default", run) for run in ("a", "b", "c", "never")]
    take(store, *(report(run=run, partials=[partial()]) for _, run in names[:3]))
    for turn in range(3):
        store.delete("default", "c")
        store.read_ahead(names)
        for _, run in names[:2]:
            ledger = store.run("default", run)
            assert ledger.totals("all").series[SERIES].partials == turn + 1
            assert [list(attempt.paged) for attempt in ledger.chosen("all")] == [[*range(turn + 1)]]
        for _, run in names[2:]:
            with pytest.raises(NotFound):
                store.run("default", run)
        store.maintain()
        more = [report(run=run, partials=[partial(iteration=turn + 1)]) for run in ("a", "b", "c")]
        take(store, *more)
        assert len(list(store.run("default", "a").latest.paged)) == turn + 2


@pytest.mark.parametrize("other", [False, True], ids=["incomplete", "complete"])
def test_store_tells_a_contradiction_as_long_as_an_iteration_is_incomplete(
    store: Store, other: bool
) -> None:
    """One rank far ahead of another is still held to its first word, and counted once."""
    for iteration in range(40):
        for rank in (0, 1) if other else (0,):
            rows = [partial(iteration=iteration, microbatch=m) for m in (0, 1)]
            done = [{"iteration": iteration, "microbatches": 2}]
            take(store, report(rank=rank, world_size=2, partials=rows, commits=done))
    assert store.run("default", "run").attempts[0].newest_complete() == (39 if other else None)
    store.maintain()
    changed = report(partials=[partial(valid=9)], world_size=2)
    (receipt,) = take(store, changed)
    assert receipt == Receipt(0, 0, 1) or (other and receipt == Receipt(0, 1, 0))
    assert store.run("default", "run").totals("all").series[SERIES].partials == (
        160 if other else 80
    )


def test_store_probe_and_maintain_change_no_answer(store: Store) -> None:
    """Housekeeping is not seen by readers."""
    take(store, report(partials=[partial()], commits=[{"iteration": 0, "microbatches": 1}]))
    before = everything(store)
    store.probe()
    store.maintain()
    assert everything(store) == before


def test_store_judges_an_attempt_by_its_own_series(store: Store) -> None:
    """An attempt that delivered nothing has no entry for a series, unless one is asked for."""
    take(store, report(world_size=1), report(attempt=1, partials=[partial()]))
    judge, ledger = Judge(Ages(), lambda: 0.0), store.run("default", "run")
    gate = judge.gate(ledger, Selection(attempts=0), Policy())
    assert (gate["gate"], gate["series"]) == ("no_data", {})
    asked = judge.gate(ledger, Selection(series=(SERIES,), attempts=0), Policy())
    assert (asked["gate"], asked["series"][SERIES]["valid_count"]) == ("no_data", 0)
    assert list(judge.gate(ledger, Selection(attempts=1), Policy())["series"]) == [SERIES]


OPERATIONS = st.lists(
    st.one_of(
        st.lists(reports(), min_size=1, max_size=3),
        st.sampled_from(["reopen", "crash", "finish", "delete"]),
    ),
    max_size=12,
)


@pytest.mark.parametrize("opener", DURABLE, ids=lambda opener: opener.__name__)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(operations=OPERATIONS)
def test_durable_store_equals_the_reference_through_restarts(
    request: pytest.FixtureRequest, opener: Opener, operations: list
) -> None:
    """Whatever arrives and however often it restarts, it answers as the reference does."""
    with TemporaryDirectory() as name:
        ground = new_ground(request, opener, Path(name))
        subject = opener(ground)
        oracle = MemoryStore(RULES, keep_iterations=subject.keep_iterations)
        try:
            for operation in operations:
                if operation in ("reopen", "crash"):
                    subject = reopened(subject, opener, ground, tidy=operation == "reopen")
                elif isinstance(operation, list):
                    assert repr(take(oracle, *operation)) == repr(take(subject, *operation))
                else:
                    for each in (oracle, subject):
                        with suppress(NotFound):
                            act(each, operation)
            assert repr(everything(oracle)) == repr(everything(subject))
        finally:
            subject.close()


def act(store: Store, operation: str) -> None:
    """Finish or delete one of the runs."""
    if operation == "finish":
        store.finish("default", "x", 0)
    else:
        store.delete("default", "x")
