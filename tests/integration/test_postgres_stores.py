"""Several stores on one PostgreSQL, and what befalls one of them, lose and double nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.stores import RULES
from rankfold.audit import audit
from rankfold.errors import NotFound, RankfoldError, StoreDamaged, StoreUnavailable
from rankfold.wire import Receipt, Report
from rankfold_service.store import Arrival, Store
from rankfold_service.store.memory import MemoryStore
from rankfold_service.store.postgres import known
from rankfold_service.store.postgres.opening import open_store
from rankfold_service.store.postgres.statements import PROBE
from rankfold_service.store.postgres.store import PostgresStore
from support import reports as rows_of
from support.postgres import Postgres, needs_postgres
from support.server import Server
from unit.core.builders import partial, picture, report
from unit.core.worlds import Parts, one_report, rearranged, worlds

pytestmark = needs_postgres

some = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
_numbers = count()


class Fleet(NamedTuple):
    """Stores of several aggregators on one database."""

    postgres: Postgres
    database: str
    stores: Sequence[PostgresStore]

    def together(self, work: Callable[[PostgresStore, int], list[Receipt]]) -> list[Receipt]:
        """Let each store do its work at the same time; return all receipts."""
        with ThreadPoolExecutor(len(self.stores)) as pool:
            done = pool.map(work, self.stores, range(len(self.stores)))
            return [receipt for receipts in done for receipt in receipts]


@pytest.fixture
def fleet(postgres: Postgres) -> Iterator[Fleet]:
    """Yield four stores; no deadlock may be in the log after their work."""
    database = postgres.create_database()
    logged = len(postgres.log)
    stores = [open_store(postgres.url(database), RULES) for _ in range(4)]
    yield Fleet(postgres, database, stores)
    for store in stores:
        store.close()
    assert "deadlock" not in postgres.log[logged:]


def take(store: Store, reports: Sequence[Report], most: int) -> list[Receipt]:
    """Ingest reports, some in each commit; each must be taken."""
    receipts = []
    for at in range(0, len(reports), most):
        for outcome in store.ingest([Arrival(r, 1.0) for r in reports[at : at + most]]):
            assert isinstance(outcome, Receipt), outcome
            receipts.append(outcome)
    store.maintain()
    return receipts


def named(reports: Sequence[Report], run: str) -> list[Report]:
    """Return the same reports of another run."""
    return [replace(each, run=run) for each in reports]


def rows(reports: Sequence[Report]) -> int:
    """Count partials and scalars."""
    return sum(len(each.partials) + len(each.scalars) for each in reports)


def total(receipts: Sequence[Receipt]) -> tuple[int, int, int]:
    """Add receipts up."""
    return (
        sum(r.accepted for r in receipts),
        sum(r.duplicates for r in receipts),
        sum(r.conflicts for r in receipts),
    )


@some
@given(parts=worlds(), seed=st.integers(0, 999), most=st.sampled_from([1, 3, 50]))
def test_stores_that_take_copies_at_once_count_each_once(
    fleet: Fleet, parts: list[Parts], seed: int, most: int
) -> None:
    """Each store gets all of a run, in an order of its own; all answer as the reference does."""
    run = f"run-{next(_numbers)}"
    chance = random.Random(seed)
    shares = [named(rearranged(parts, chance), run) for _ in fleet.stores]
    receipts = fleet.together(lambda store, at: take(store, shares[at], most))
    reference = MemoryStore(RULES)
    whole = named([one_report(*part) for part in parts], run)
    distinct, _, _ = total(take(reference, whole, 1))
    sent = sum(map(rows, shares))
    assert total(receipts) == (distinct, sent - distinct, 0)
    expected = picture(reference.run("default", run))
    for store in fleet.stores:
        assert picture(store.run("default", run)) == expected
        assert list(audit(store.run("default", run))) == []


@some
@given(parts=worlds(contradictory=True), seed=st.integers(0, 999))
def test_stores_that_take_contradictions_at_once_agree(
    fleet: Fleet, parts: list[Parts], seed: int
) -> None:
    """Whoever is first stands: what was accepted is what is folded, for every store."""
    run = f"run-{next(_numbers)}"
    chance = random.Random(seed)
    shares = [named(rearranged(parts, chance), run) for _ in fleet.stores]
    receipts = fleet.together(lambda store, at: take(store, shares[at], 2))
    ledgers = [store.run("default", run) for store in fleet.stores]
    assert sum(total(receipts)) == sum(map(rows, shares))
    table = ledgers[0].totals("all")
    folded = sum(fold.partials for fold in table.series.values())
    folded += sum(fold.values + fold.nonfinite for fold in table.scalars.values())
    assert folded == total(receipts)[0]
    first, *others = [picture(ledger) for ledger in ledgers]
    assert others == [first] * len(others)
    assert [line for ledger in ledgers for line in audit(ledger)] == []


def test_stores_that_make_many_runs_and_ranks_at_once_wait_in_one_order(fleet: Fleet) -> None:
    """Runs, ranks and what belongs to no rank are new to all of them at the same moment."""
    everything = [
        replace(one_report(0, rank, False, items), run=f"run-{number}")
        for number in range(12)
        for rank in range(3)
        for items in [[("partial", 0, 0, 0, "a"), ("scalar", 0, 0, 0, "tokens")]]
    ]

    def work(store: PostgresStore, at: int) -> list[Receipt]:
        shuffled = random.Random(at).sample(everything, len(everything))
        return take(store, shuffled, 18)

    receipts = fleet.together(work)
    # Of the global scalar each run counts one.
    assert total(receipts)[0] == 12 * 3 + 12
    for store in fleet.stores:
        assert len(store.names()) == 12
        for name in store.names():
            ledger = store.run(*name)
            assert sorted(ledger.attempts[0].reporters) == [0, 1, 2]
            assert list(audit(ledger)) == []


@pytest.mark.parametrize("seed", range(3))
def test_runs_that_are_deleted_and_finished_meanwhile_leave_nothing_behind(
    fleet: Fleet, seed: int
) -> None:
    """Stores agree whatever was deleted under them; what is begun anew knows nothing of before."""
    sent = [
        replace(one_report(attempt, rank, True, [("partial", 0, i, 0, "a")]), run=run)
        for run in ("x", "y")
        for attempt in (0, 2)
        for rank in range(3)
        for i in range(2)
    ]
    sent = [each for each in sent if rows([each])]

    def work(store: PostgresStore, at: int) -> list[Receipt]:
        chance = random.Random((seed, at).__repr__())
        receipts = []
        for _ in range(12):
            receipts += take(store, chance.sample(sent, 6), 3)
            with suppress(NotFound):
                store.finish("default", chance.choice("xy"), 0)
            if chance.random() < 0.4:
                with suppress(NotFound):
                    store.delete("default", chance.choice("xy"))
        return receipts

    fleet.together(work)
    names = {tuple(store.names()) for store in fleet.stores}
    assert len(names) == 1
    for name in names.pop():
        first, *others = [picture(store.run(*name)) for store in fleet.stores]
        assert others == [first] * len(others)
        assert list(audit(fleet.stores[0].run(*name))) == []
        fleet.stores[0].delete(*name)
    reference = MemoryStore(RULES)
    for at, each in enumerate(sent):
        assert take(fleet.stores[at % 4], [each], 1) == take(reference, [each], 1)
    for name in reference.names():
        for store in fleet.stores:
            assert picture(store.run(*name)) == picture(reference.run(*name))


def test_read_sees_what_any_store_acknowledged_and_one_moment(fleet: Fleet) -> None:
    """While others write: the newest acknowledged report, and pages that add up to the totals."""
    writer, *readers = fleet.stores

    def work(store: PostgresStore, at: int) -> list[Receipt]:
        if at == 0:
            for i in range(40):
                take(writer, [report(0, [partial(i, m) for m in range(3)], [], [(i, 3)])], 1)
                seen = readers[0].run("default", "run").totals("all")
                assert [fold.partials for fold in seen.series.values()] == [3 * (i + 1)]
        elif at > 1:
            for _ in range(40):
                with suppress(NotFound):
                    assert list(audit(store.run("default", "run"))) == []
        return []

    fleet.together(work)


def refuse(store: Store, refused: Report) -> None:
    """Raise why a report is not taken, whether that is its own outcome or its commit's."""
    for outcome in store.ingest([Arrival(refused, 1.0)]):
        if isinstance(outcome, RankfoldError):
            raise outcome


DAMAGED = {"page": "folded", "journal": "records", "book": "head", "run": "facts"}


@pytest.mark.parametrize("table", DAMAGED)
def test_damage_is_found_and_named(fleet: Fleet, table: str) -> None:
    """Nothing that was damaged is believed, and the answer says where to look."""
    one, other, third, _ = fleet.stores
    for i in range(18):
        take(one, [report(2, [partial(i)], [], [(i, 1)])], 1)
    cut = "UPDATE {0} SET {1} = substr({1}, 1, length({1}) - 1)"
    fleet.postgres.execute(cut.format(table, DAMAGED[table]), database=fleet.database)
    place = r"'run'" if table == "run" else r"rank 2 of run 'run'"
    with pytest.raises(StoreDamaged, match=place):
        list(audit(other.run("default", "run")))
    with pytest.raises(StoreDamaged, match=place):
        refuse(third, report(2, [partial(0, 1)]))


def test_damage_of_one_rank_costs_others_nothing(fleet: Fleet) -> None:
    """An aggregator takes all other reports, shows all other runs and stays ready."""
    first, *_ = fleet.stores
    for rank in range(8):
        take(first, [report(rank, [partial(0)], world_size=8)], 1)
    cut = "UPDATE journal SET records = substr(records, 2) WHERE rank = 5"
    fleet.postgres.execute(cut, database=fleet.database)
    with Server(fleet.postgres.url(fleet.database), "--scrape-cache", "0") as server:
        with ThreadPoolExecutor(8) as pool:
            said = [rows_of.partial(microbatch=1)]
            sent = [pool.submit(server.report, run="run", rank=r, partials=said) for r in range(8)]
            answers = [each.result() for each in sent]
        assert [answer.status_code for answer in answers] == [200] * 5 + [503] + [200] * 2
        refused = answers[5].json()
        assert (refused["code"], refused["retryable"]) == ("store_damaged", True)
        assert "rank 5 of run 'run' is damaged: restore the store" in refused["detail"]
        assert server.report(run="other", rank=0).status_code == 200
        assert server.client.get("/-/ready").status_code == 200
        shown = server.client.get("/metrics").text
        assert 'rankfold_conflicts{project="default",run="other"} 0' in shown
        assert 'run="run"' not in shown
        assert "\nrankfold_damaged_runs 1.0\n" in shown


def test_news_that_were_half_entered_are_forgotten(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that fails midway leaves nothing for the next one to go wrong by."""
    one, other, *_ = fleet.stores
    with monkeypatch.context() as patch:
        patch.setattr(known, "MOST_JOURNALED", 1)
        for i in range(6):
            take(one, [report(0, [partial(i)])], 1)
    one.run("default", "run")
    later = report(0, [partial(0, 1), partial(1, 1)])
    take(other, [later], 1)
    damage = "UPDATE page SET folded = '\\x00'::bytea || substr(folded, 2) WHERE iteration = 1"
    ((kept,),) = fleet.postgres.execute(
        "SELECT folded FROM page WHERE iteration = 1", database=fleet.database
    )
    fleet.postgres.execute(damage, database=fleet.database)
    with pytest.raises(StoreDamaged, match="damaged at iteration 1"):
        one.run("default", "run")
    fleet.postgres.execute(
        "UPDATE page SET folded = %b WHERE iteration = 1", kept, database=fleet.database
    )
    ledger = one.run("default", "run")
    assert [fold.partials for fold in ledger.totals("all").series.values()] == [8]
    assert list(audit(ledger)) == []


def test_store_forgets_what_a_new_connection_may_not_have(fleet: Fleet) -> None:
    """After a failover that lost a commit, its report is new again."""
    one, *_ = fleet.stores
    take(one, [report(0, [partial(0)])], 1)
    lose = "UPDATE book SET version = version - 1; DELETE FROM journal WHERE version = 2"
    take(one, [report(0, [partial(0, 1)])], 1)
    fleet.postgres.execute(lose, database=fleet.database)
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    fleet.postgres.execute(end, fleet.database)
    assert take(one, [report(0, [partial(0, 1)])], 1) == [Receipt(1, 0, 0)]


def test_probe_waits_for_nobody(fleet: Fleet) -> None:
    """A session that stops amid its probe takes the readiness of no other aggregator away."""
    one, other, *_ = fleet.stores

    def stops() -> None:
        for statement in PROBE:
            one.database.send(statement)
        assert one.database.rows("SELECT count(*) FROM probe") == [(1,)]
        before = fleet.postgres.execute("SELECT pg_current_wal_flush_lsn()")
        other.probe()
        # It had to wait for the disk all the same.
        assert fleet.postgres.execute("SELECT pg_current_wal_flush_lsn()") != before

    one.database.write(stops)


def test_probe_needs_room_as_reports_do(fleet: Fleet) -> None:
    """Readiness fails where files of the database cannot grow."""
    one, *_ = fleet.stores
    one.probe()
    limit = f"ALTER DATABASE {fleet.database} SET temp_file_limit = '128kB'"
    fleet.postgres.execute(limit)
    other = open_store(fleet.postgres.url(fleet.database), RULES)
    with pytest.raises(StoreUnavailable, match="temporary file size"):
        other.probe()
    other.close()


def test_contents_that_somebody_writes_are_folded_away_another_time(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who folds away never waits for a writer, which may be waiting for what it has folded."""
    monkeypatch.setattr(known, "MOST_JOURNALED", 1)
    one = open_store(fleet.postgres.url(fleet.database), RULES, 1)
    for i in range(6):
        take(one, [report(0, [partial(i), partial(i, 1)], [], [(i, 2)], world_size=1)], 1)
    contents = "SELECT iteration FROM content ORDER BY iteration"
    with fleet.postgres.connect(fleet.database) as writer, writer.transaction():
        writer.execute("SELECT FROM content WHERE iteration = 2 FOR UPDATE")
        one.run("default", "run")
        one.maintain()
    assert fleet.postgres.execute(contents, database=fleet.database) == [(2,), (5,)]
    one.close()
