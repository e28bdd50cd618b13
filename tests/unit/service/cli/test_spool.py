"""`rankfold spool flush` runs the client's own program and passes on what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankfold_service.cli.main import main


def test_spool_flush_says_that_nothing_is_left(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An empty spool, or a folder that is none: it says so, and exit 0."""
    assert main(["spool", "flush", str(tmp_path), "--token", "secret", "--timeout", "5"]) == 0
    assert capfd.readouterr().out == (
        f"there is no spool in {tmp_path}, or nothing is left in it\n"
        "delivered 0, refused 0, left 0\n"
    )


def test_spool_flush_passes_an_exit_code_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A directory that is none: one line and exit 2, whatever its name begins with."""
    assert main(["spool", "flush", "--", str(tmp_path / "none")]) == 2
    error = capfd.readouterr().err
    assert error.startswith("rankfold spool: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [[], ["flush"], ["drop", "x"], ["flush", "x", "--timeout", "-1"]]
)
def test_spool_refuses_wrong_usage(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """What is missing or wrong is named before anything runs."""
    assert main(["spool", *arguments]) == 2
    assert "usage: rankfold spool" in capfd.readouterr().err
