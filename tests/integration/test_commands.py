"""What the commands say to a person who got something wrong, asked of a real aggregator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rankfold_service.cli.main import main
from support.reports import partial
from support.server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """An aggregator with one run, complete so far, that goes on."""
    with Server("memory://") as server:
        commits = [{"iteration": 0, "microbatches": 1}]
        clean = partial()
        said = server.report(run="run", rank=0, world_size=1, partials=[clean], commits=commits)
        assert said.status_code == 200, said.text
        yield server


@pytest.mark.parametrize("command", [["gate", "run"], ["runs"], ["totals", "run"]])
def test_an_address_with_a_path_that_is_none_is_no_aggregators(
    server: Server, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its 404 is not taken for one about a run: every command ends as at a foreign server."""
    assert main([*command, "--url", f"{server.url}/x"]) == 4
    error = capsys.readouterr().err
    assert f"{server.url}/x is no Rankfold aggregator's address" in error
    assert "--url" in error


def test_a_run_that_is_not_known_is_no_wrong_address(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no data for the gate, and is a failure for the others."""
    assert main(["gate", "other", "--url", server.url]) == 3
    assert main(["totals", "other", "--url", server.url]) == 1
    assert capsys.readouterr().err.count("'rankfold runs' lists runs") == 2


def test_a_run_that_goes_on_passes_with_a_word_that_this_is_not_final(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time is up: exit 0 so far, or 3 with --require-finished."""
    waited = ["gate", "run", "--url", server.url, "--wait", "0.1"]
    assert main(waited) == 0
    assert "not final after 0.1 s: the run is running" in capsys.readouterr().err
    assert main([*waited, "--require-finished"]) == 3
