"""`rankfold migrate` brings a store to the current schema and says what it did."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankfold_service.cli.main import main
from rankfold_service.store.migrate import create, migrations


def test_migrate_prints_what_it_applied(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is a line."""
    monkeypatch.setattr("rankfold_service.cli.migrate.migrate", lambda _: ["0002_a", "0003_b"])
    assert main(["migrate"]) == 0
    assert capsys.readouterr().out == "applied 0002_a\napplied 0003_b\n"


def test_migrate_leaves_a_current_store_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that this version made needs nothing."""
    monkeypatch.setenv("RANKFOLD_STORE", f"sqlite:///{tmp_path}/rankfold.db")
    create(tmp_path / "rankfold.db", migrations())
    assert main(["migrate"]) == 0
    assert capsys.readouterr().out == "the store is current\n"


def test_migrate_refuses_a_store_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped path makes no new store."""
    assert main(["migrate", "--store", f"sqlite:///{tmp_path}/typo.db"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"rankfold migrate: {tmp_path}/typo.db is not there")
    assert (error.count("\n"), list(tmp_path.iterdir())) == (1, [])


def test_migrate_refuses_a_file_that_is_no_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not ours is left alone, in one line and exit 2."""
    foreign = tmp_path / "notes.txt"
    foreign.write_text("not a database, but long enough to be looked at\n" * 100)
    assert main(["migrate", "--store", f"sqlite:///{foreign}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("rankfold migrate: ")
    assert (str(foreign) in error, error.count("\n")) == (True, 1)


def test_migrate_refuses_an_unknown_kind_of_store(capsys: pytest.CaptureFixture[str]) -> None:
    """The line says which URLs there are."""
    assert main(["migrate", "--store", "mysql://host/db"]) == 2
    assert capsys.readouterr().err.startswith(
        "rankfold migrate: unknown store 'mysql://host/db': use sqlite:///PATH"
    )
