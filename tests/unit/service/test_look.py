"""Looking at runs for the gauges: only those that changed, a few at a time."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

import pytest

from rankfold.errors import StoreDamaged
from rankfold.gate import Gate
from rankfold.ledger import Ledger
from rankfold.rules import RuleSet
from rankfold.wire import Receipt, Report
from rankfold_service import look as looks
from rankfold_service.aggregate import Aggregator
from rankfold_service.judge import Ages, Judge
from rankfold_service.lines import Lines
from rankfold_service.look import Lookout
from rankfold_service.retention import Retention
from rankfold_service.store import Arrival
from rankfold_service.store.memory import MemoryStore
from rankfold_service.writer import Writer
from support.gauges import lines_of
from unit.service.snapshots import compared, new_ledger, tell

AGES = Ages(stale=60, leave_finished=100, leave_stale=200)


class Clock:
    """A clock that stands still until it is set."""

    now = 1000.0

    def __call__(self) -> float:
        """Return the time that it was set to."""
        return self.now


def begun() -> Ledger:
    """Return a run of two ranks of which one has reported, at 1000."""
    ledger = new_ledger()
    tell(ledger, compared(), world_size=2, commit=0, now=1000.0)
    return ledger


class Counted(MemoryStore):
    """A store that notes which run is read, and may do something before it."""

    def __init__(self) -> None:
        super().__init__(RuleSet())
        self.read: list[str] = []
        self.before: Callable[[str], None] = lambda run: None

    def run(self, project: str, run: str) -> Ledger:
        """Return a run, after what was to be done."""
        self.read.append(run)
        self.before(run)
        return super().run(project, run)


def lines_seen(
    store: MemoryStore, clock: Clock, *changes: Callable[[], object]
) -> list[Lines | None]:
    """Return the lines of the only run at first and after each change, None where it left."""
    writer = Writer(store)
    lookout = Lookout(writer, Judge(AGES, clock))

    async def look() -> list[Lines | None]:
        writer.start()
        try:
            seen = [await lookout.look()]
            for change in changes:
                change()
                seen.append(await lookout.look())
        finally:
            writer.close()
        return [next(iter(lines.values()), None) for lines in seen]

    return asyncio.run(look())


def expected(ledger: Ledger, clock: Clock) -> Lines:
    """Return the lines of a run as it is now."""
    judge = Judge(AGES, clock)
    return lines_of(judge.snapshot(ledger, judge.mark(ledger)))


def holding(ledger: Ledger) -> Counted:
    """Return a store that has one run."""
    store = Counted()
    store.ledgers[ledger.project, ledger.run] = ledger
    return store


def test_look_at_an_unchanged_run_gives_the_lines_of_before() -> None:
    """It is neither read nor written again, though time goes on."""
    store, clock = holding(begun()), Clock()

    def wait() -> None:
        clock.now += 1

    first, second = lines_seen(store, clock, wait)
    assert first is not None
    assert first is second
    assert len(store.read) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger: tell(ledger, compared(), rank=1),
        lambda ledger: tell(ledger, compared()),
        lambda ledger: tell(ledger, commit=0, rank=1),
        lambda ledger: tell(ledger, attempt=1),
        lambda ledger: ledger.finish(0),
    ],
    ids=["partial", "duplicate", "commit", "attempt", "finish"],
)
def test_look_sees_every_change(change: Callable[[Ledger], None]) -> None:
    """Whatever is taken into the books is written anew, though the clock stands still."""
    ledger, clock = begun(), Clock()
    first, second = lines_seen(holding(ledger), clock, lambda: change(ledger))
    assert second is not first
    assert second == expected(ledger, clock)


def test_look_sees_another_ledger_of_the_same_run() -> None:
    """A run that was deleted and began anew is another, however alike it is."""
    store, clock = holding(begun()), Clock()
    first, second = lines_seen(store, clock, lambda: store.ledgers.update(holding(begun()).ledgers))
    assert first == second
    assert first is not second


def test_look_sees_that_a_silent_run_became_stale() -> None:
    """Time alone changes the live verdict: nothing is in progress any more."""
    ledger, clock = begun(), Clock()

    def wait() -> None:
        clock.now += AGES.stale + 1

    both = lines_seen(holding(ledger), clock, wait)
    words = [verdict(lines) for lines in both if lines is not None]
    assert words == [Gate.NO_DATA, Gate.INCOMPLETE]


def verdict(lines: Lines) -> str:
    """Return the status that is 1 among a run's lines."""
    (status,) = re.findall(
        r'^rankfold_gate{.*status="(\w+)"} 1$', b"".join(lines.families).decode(), re.M
    )
    return str(status)


@pytest.mark.parametrize(
    ("finished", "limit"), [(True, AGES.leave_finished), (False, AGES.leave_stale)]
)
def test_look_no_longer_shows_what_has_left(finished: bool, limit: float) -> None:
    """A run leaves after its time, comes back if it reports, and is not read in between."""
    ledger, clock = begun(), Clock()
    store = holding(ledger)
    if finished:
        ledger.finish(0)
    clock.now += limit

    def wait() -> None:
        clock.now += 1

    def report() -> None:
        tell(ledger, compared(), rank=1, now=clock.now)

    shown, gone, still_gone, back = lines_seen(store, clock, wait, wait, report)
    assert shown is not None
    assert (gone, still_gone) == (None, None)
    assert back == expected(ledger, clock)
    assert len(store.read) == 2


def looking(
    store: MemoryStore, what: Callable[[Aggregator], Awaitable[object]], *runs: str
) -> object:
    """Return what comes of asking an aggregator of a store that knows some runs."""
    for run in runs:
        store.ingest([Arrival(Report(run, 0), time.time())])
    writer = Writer(store)
    aggregator = Aggregator(writer, RuleSet(), Ages(), Retention(), time.time)

    async def ask() -> object:
        writer.start()
        try:
            return await what(aggregator)
        finally:
            writer.close()

    return asyncio.run(ask())


async def names_seen(aggregator: Aggregator) -> list[str]:
    """Return the names of the runs that the gauges show."""
    return [run for _, run in await aggregator.look()]


def test_look_returns_runs_in_order() -> None:
    """Runs come by project and name, whatever was reported first."""
    assert looking(MemoryStore(RuleSet()), names_seen, "c", "a", "b") == ["a", "b", "c"]


def test_look_leaves_out_a_run_that_was_deleted_meanwhile() -> None:
    """A run that goes away between two turns is no error."""
    store = Counted()
    store.before = lambda run: store.delete("default", "b") if run == "a" else None
    assert looking(store, names_seen, "a", "b", "c") == ["a", "c"]


def test_look_reads_only_what_has_changed() -> None:
    """A run that is as it was is not read again, shown or not."""
    store = Counted()

    async def look(aggregator: Aggregator) -> object:
        first = await aggregator.look()
        assert await aggregator.look() == first
        await aggregator.ingest(Report("b", 1))
        third = await aggregator.look()
        return [third[name] is not first[name] for name in third]

    store.ingest([Arrival(Report("silent", 0), time.time() - 10 * Ages().leave_stale)])
    assert looking(store, look, "a", "b") == [False, True]
    assert store.read == ["a", "b", "silent", "b"]


def test_look_leaves_out_what_is_damaged(caplog: pytest.LogCaptureFixture) -> None:
    """The others are shown; it is counted and told as long as it cannot be read."""
    store = Counted()

    def before(run: str) -> None:
        if run == "b" and len(store.read) < 4:
            raise StoreDamaged("it is damaged")

    async def look(aggregator: Aggregator) -> object:
        return [(await names_seen(aggregator), aggregator.damaged) for _ in range(3)]

    store.before = before
    whole = (["a", "b", "c"], 0)
    assert looking(store, look, "a", "b", "c") == [(["a", "c"], 1), whole, whole]
    assert caplog.text.count("left out of the gauges: it is damaged") == 1


@pytest.mark.parametrize("waiting", [True, False])
def test_reports_are_taken_between_two_runs_of_a_look(
    waiting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run is looked at before a report is taken only where none waits."""
    monkeypatch.setattr(looks, "LOOK_SECONDS", math.inf)
    monkeypatch.setattr(looks, "LOOK_PART", 0.0)
    monkeypatch.setattr(looks, "LEAST_SECONDS", 0.0)
    store = Counted()
    store.ingest([Arrival(Report(run, 0), time.time()) for run in ("a", "b")])
    writer = Writer(store)

    async def look() -> None:
        loop = asyncio.get_running_loop()
        done: list[Future[Receipt]] = []

        def before(run: str) -> None:
            if run == "a" and waiting:
                report = writer.submit(Report("c", 0))
                done.append(asyncio.run_coroutine_threadsafe(report, loop))
                while not writer.waited_for:
                    time.sleep(0.001)
            if run == "b":
                assert ("default", "c") in store.ledgers or not waiting

        store.before = before
        writer.start()
        try:
            await Lookout(writer, Judge(AGES, Clock())).look()
            for report in done:
                await asyncio.wrap_future(report)
        finally:
            writer.close()

    asyncio.run(look())
    assert store.read == ["a", "b"]
