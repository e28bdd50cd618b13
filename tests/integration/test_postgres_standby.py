"""A standby takes its primary's place: what is acknowledged is there, and nothing is made up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from contract.stores import RULES
from rankfold.audit import audit
from rankfold.errors import StoreUnavailable
from rankfold.wire import Receipt
from rankfold_service.cli.main import main
from rankfold_service.store import Arrival
from rankfold_service.store.postgres import database as databases
from rankfold_service.store.postgres.opening import open_store
from rankfold_service.store.postgres.store import PostgresStore
from support.postgres import Postgres, needs_postgres
from support.standby import Standby
from unit.core.builders import partial, picture, report

pytestmark = needs_postgres


@pytest.fixture
def primary() -> Iterator[Postgres]:
    """Yield a cluster that others may follow."""
    with Postgres() as running:
        yield running


@pytest.fixture
def standby(primary: Postgres) -> Iterator[Standby]:
    """Yield one that follows it, and is not waited for."""
    with Standby(primary) as running:
        yield running


@pytest.fixture
def url(primary: Postgres, standby: Standby) -> str:
    """Return the URL of a database, wherever it is."""
    return standby.beside(primary.url(primary.create_database()))


def send(store: PostgresStore, *microbatches: int) -> object:
    """Report some microbatches in one commit."""
    return store.ingest([Arrival(report(0, [partial(0, m) for m in microbatches]), 1.0)])


def folded(store: PostgresStore) -> int:
    """Return how many partials a run has."""
    (fold,) = store.run("default", "run").totals("all").series.values()
    return fold.partials


def test_commands_take_the_url_of_several_hosts(
    url: str, primary: Postgres, standby: Standby, capsys: pytest.CaptureFixture[str]
) -> None:
    """They find who takes writes, before a standby is promoted and afterwards."""
    assert main(["migrate", "--store", url]) == 0
    standby.be_waited_for()
    with closing(open_store(url, RULES)) as store:
        assert send(store, 0) == [Receipt(1, 0, 0)]
    primary.stop("immediate")
    standby.promote()
    assert main(["migrate", "--store", url]) == 0
    assert main(["verify", "--store", url]) == 0
    assert capsys.readouterr().err == ""
    with closing(open_store(url, RULES)) as store:
        assert folded(store) == 1


def test_what_a_failover_lost_is_new_again(primary: Postgres, standby: Standby, url: str) -> None:
    """A standby that was not waited for lacks commits: no aggregator remembers them."""
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(open_store(url, RULES))) for _ in range(2)]
        one, other = stores
        assert send(one, 0) == [Receipt(1, 0, 0)]
        standby.wait(standby.has_all)
        standby.stop()
        assert send(one, 1) == [Receipt(1, 0, 0)]
        assert send(other, 2, 3) == [Receipt(2, 0, 0)]
        assert [folded(store) for store in stores] == [4, 4]
        primary.stop("immediate")
        with pytest.raises(StoreUnavailable, match=r"refused; host: .*refused"):
            send(one, 4)
        standby.start()
        with pytest.raises(StoreUnavailable, match=r"refused; host: .*read-only"):
            send(other, 4)
        standby.promote()
        assert [folded(store) for store in stores] == [1, 1]
        assert send(other, 0, 1) == [Receipt(1, 1, 0)]
        assert send(one, 0, 1, 2, 3) == [Receipt(2, 2, 0)]
        pictures = [picture(store.run("default", "run")) for store in stores]
        assert pictures[0] == pictures[1]
        assert [line for store in stores for line in audit(store.run("default", "run"))] == []


def test_nothing_is_acknowledged_without_the_standby_that_is_waited_for(
    standby: Standby, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit that waited for it counts once when it is back, and its copy is one."""
    with closing(open_store(url, RULES)) as store:
        standby.be_waited_for()
        assert send(store, 0) == [Receipt(1, 0, 0)]
        standby.stop()
        with monkeypatch.context() as patch:
            patch.setattr(databases, "SILENCE_SECONDS", 0.5)
            with pytest.raises(StoreUnavailable, match="closed the connection"):
                send(store, 1)
        standby.start()
        assert send(store, 1) == [Receipt(0, 1, 0)]
        assert folded(store) == 2


def test_old_primary_that_comes_back_acknowledges_nothing(
    primary: Postgres, standby: Standby, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a standby that follows it no more; what it was sent is new to the other."""
    with closing(open_store(url, RULES)) as store:
        standby.be_waited_for()
        assert send(store, 0) == [Receipt(1, 0, 0)]
        primary.stop("immediate")
        standby.promote()
        assert send(store, 1) == [Receipt(1, 0, 0)]
        primary.start()
        assert send(store, 2) == [Receipt(1, 0, 0)]
    with closing(open_store(url, RULES)) as store:
        with monkeypatch.context() as patch:
            patch.setattr(databases, "SILENCE_SECONDS", 0.5)
            with pytest.raises(StoreUnavailable, match="closed the connection"):
                send(store, 3)
        primary.stop("immediate")
        assert folded(store) == 3
        assert send(store, 3) == [Receipt(1, 0, 0)]
