"""`backup` and `verify` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankfold.rules import RuleSet
from rankfold_service.cli.main import main
from rankfold_service.store import Arrival
from rankfold_service.store.sqlite import SqliteStore
from support.reports import partial, report


def test_backup_then_verify_says_that_all_agrees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy is named with its size, and verifies while the original is in use."""
    store = SqliteStore(tmp_path / "store.db", RuleSet())
    store.ingest([Arrival(report(partials=[partial()]), 1.0)])
    source, target = f"sqlite:///{tmp_path}/store.db", tmp_path / "copy.db"
    assert main(["backup", "--store", source, "--to", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}: {target.stat().st_size:,} bytes\n"
    assert main(["verify", "--store", f"sqlite:///{target}"]) == 0
    assert capsys.readouterr().out == "every total is what its pages fold to\n"
    assert main(["verify", "--store", source]) == 2
    assert "in use by another process" in capsys.readouterr().err
    assert main(["backup", "--store", source, "--to", str(target)]) == 2
    assert "is there already" in capsys.readouterr().err
    store.close()


def test_verify_exits_1_where_something_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script can tell damage from agreement."""
    store = SqliteStore(tmp_path / "store.db", RuleSet())
    store.ingest([Arrival(report(partials=[partial()]), 1.0)])
    store.run("default", "run").attempts[0].conflicts = 7
    store.close()
    assert main(["verify", "--store", f"sqlite:///{tmp_path}/store.db"]) == 1
    out = capsys.readouterr().out
    assert "7 conflicts are stored, its pages hold 0" in out
    assert out.endswith("1 difference\n")
