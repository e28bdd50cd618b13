"""Runs are moved from SQLite into PostgreSQL whole, compared, and go on there."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings

from contract.answering import everything
from contract.stores import RULES
from rankfold.wire import Receipt, Report
from rankfold_service.cli.main import main
from rankfold_service.store import Arrival
from rankfold_service.store.postgres.opening import open_store
from rankfold_service.store.sqlite import SqliteStore
from support.postgres import Postgres, needs_postgres
from support.reports import partial, report
from unit.core.worlds import Parts, one_report, worlds

pytestmark = needs_postgres


def filled(path: Path, *reports: Report) -> SqliteStore:
    """Return a SQLite store with these reports."""
    store = SqliteStore(path, RULES)
    store.ingest([Arrival(each, 1.0) for each in reports])
    return store


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=worlds(contradictory=True))
def test_moved_run_answers_as_before_and_goes_on(postgres: Postgres, parts: list[Parts]) -> None:
    """Every answer is the same, and every copy of what was sent before is known."""
    sent = [one_report(*part) for part in parts]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        kept = filled(path, *sent)
        before = repr(everything(kept))
        again = [Arrival(each, 2.0) for each in sent]
        kept.close()
        url = postgres.url(postgres.create_database())
        assert main(["migrate", "--from", f"sqlite:///{path}", "--to", url]) == 0
        moved, kept = open_store(url, RULES), SqliteStore(path, RULES)
        assert repr(everything(moved)) == before
        assert moved.ingest(again) == kept.ingest(again)
        assert repr(everything(moved)) == repr(everything(kept))
        moved.close()
        kept.close()
        assert main(["verify", "--store", url]) == 0


def test_move_that_broke_off_goes_on(
    postgres: Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was moved is compared and left; the rest follows; progress is said."""
    url = postgres.url(postgres.create_database())
    command = ["migrate", "--from", f"sqlite:///{tmp_path}/store.db", "--to", url]
    one = report(run="a", partials=[partial(iteration=i) for i in range(3)], world_size=1)
    filled(tmp_path / "store.db", one).close()
    assert main(command) == 0
    filled(tmp_path / "store.db", report(run="b", partials=[partial()])).close()
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 of 1: run 'a' of project 'default': moved and compared (1 rank, 3 iterations)",
        "1 of 2: run 'a' of project 'default': was there already, equal (1 rank, 3 iterations)",
        "2 of 2: run 'b' of project 'default': moved and compared (1 rank, 1 iteration)",
    ]
    store = open_store(url, RULES)
    assert store.ingest([Arrival(one, 9.0)]) == [Receipt(0, 3, 0)]
    store.close()


def test_run_that_differs_at_its_target_is_left_alone(
    postgres: Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody's numbers are replaced, and other runs are moved: the message says what to do."""
    url = postgres.url(postgres.create_database())
    there = open_store(url, RULES)
    there.ingest([Arrival(report(partials=[partial(valid=5)]), 1.0)])
    before = repr(everything(there))
    filled(
        tmp_path / "store.db",
        report(partials=[partial(valid=6)]),
        report(run="zzz", partials=[partial()]),
    ).close()
    assert main(["migrate", "--from", f"sqlite:///{tmp_path}/store.db", "--to", url]) == 2
    said = capsys.readouterr()
    first, second = said.out.splitlines()
    assert "NOT MOVED, is there with other content: attempt 0: all folds over all ranks" in first
    assert "2 of 2: run 'zzz' of project 'default': moved and compared" in second
    assert "not moved: 1 of 2 runs" in said.err
    assert "delete one there to move it again" in said.err
    there.delete("default", "zzz")
    assert repr(everything(there)) == before
    there.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "sqlite:///x.db"], "--from and --to go together"),
        (
            ["--from", "sqlite:///x.db", "--to", "sqlite:///y.db"],
            "from a SQLite store into",
        ),
        (["--from", "memory://", "--to", "postgresql://x/y"], "unknown store"),
        (["--from", "sqlite:////nowhere/x.db", "--to", "postgresql://x/y"], "is not there"),
    ],
)
def test_move_that_makes_no_sense_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with what to do instead."""
    assert main(["migrate", *arguments]) == 2
    assert words in capsys.readouterr().err
