"""`rankfold migrate` brings a store to the current schema and says what it did."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankfold_service.cli.main import main
from rankfold_service.store.migrate import migrations


def test_migrate_prints_what_it_applied_and_then_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new store gets every migration; a current one is left as it is."""
    monkeypatch.setenv("RANKFOLD_STORE", f"sqlite:///{tmp_path}/rankfold.db")
    assert main(["migrate"]) == 0
    applied = [f"applied {step.name}" for step in migrations()]
    assert capsys.readouterr().out.splitlines() == applied
    assert main(["migrate"]) == 0
    assert capsys.readouterr().out == "the store is current\n"


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
    assert capsys.readouterr().err == (
        "rankfold migrate: unknown store 'mysql://host/db': "
        "use sqlite:///PATH (sqlite:////PATH for an absolute one)\n"
    )
