"""`backup` and `verify` on the command line."""

from __future__ import annotations

import sqlite3
from contextlib import closing
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
    assert capsys.readouterr().out == "every total is what its iterations fold to\n"
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


def test_verify_names_all_that_is_damaged_and_looks_at_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that cannot be read, a page that cannot, and a total that differs are three faults."""
    path = tmp_path / "store.db"
    store = SqliteStore(path, RuleSet())
    for run in "abcd":
        store.ingest([Arrival(report(run=run, partials=[partial()]), 1.0)])
    store.run("default", "c").attempts[0].conflicts = 7
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE run SET head = x'00' WHERE name = 'a'")
        connection.execute(
            "UPDATE page SET body = x'00' WHERE run_id = (SELECT id FROM run WHERE name = 'b')"
        )
    before = path.read_bytes()
    assert main(["verify", "--store", f"sqlite:///{path}"]) == 1
    a, b, c, end = capsys.readouterr().out.splitlines()
    assert a.startswith(f"run 'a' in {path} is damaged: ")
    assert b.startswith(f"run 'b' in {path} is damaged at iteration 0 of attempt 0: ")
    assert c.startswith("run 'c' of 'default', attempt 0: 7 conflicts are stored")
    assert end == "3 differences"
    assert path.read_bytes() == before
