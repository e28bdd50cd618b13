"""`rankfold runs`, `totals`, `ranks` and `worst` print what the API answers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from rankfold_service.cli.main import main
from unit.service.cli.canned import CannedAggregator

ATTEMPT = {"attempt": 0, "world_size": 2, "reporting": 2}


def run_answer(run: str, **changes: Any) -> dict[str, Any]:
    """Return a run as lists show it."""
    return {
        "project": "default",
        "run": run,
        "state": "running",
        "attempts": [ATTEMPT],
        "world_size": 2,
        "last_iteration": 12000,
        "last_report": time.time() - 200,
        "gate": "pass",
    } | changes


def one_page(*items: Any) -> dict[str, Any]:
    """Return a list that fits on one page."""
    return {"items": list(items), "next": None}


def test_runs_lists_those_of_all_projects(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a project every run is shown, a line each."""
    aggregator.answer("/projects", one_page({"project": "default"}, {"project": "zero diff"}))
    aggregator.answer("/projects/default/runs", one_page(run_answer("qwen3")))
    other = run_answer(
        "llama",
        project="zero diff",
        state="finished",
        attempts=[ATTEMPT, ATTEMPT | {"reporting": 7}],
        world_size=None,
        last_iteration=None,
        gate="no_data",
    )
    aggregator.answer("/projects/zero%20diff/runs", one_page(other))
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == (
        "project    run    gate     state     attempts   ranks  last iteration  last report\n"
        "default    qwen3  pass     running          1  2 of 2           12000    3 min ago\n"
        "zero diff  llama  no_data  finished         2  7 of ?               -    3 min ago\n"
    )


def test_runs_of_one_project_asks_for_no_other(aggregator: CannedAggregator) -> None:
    """A project that is given is the only one that is read."""
    aggregator.answer("/projects/zero-diff/runs", one_page())
    assert main(["runs", "--project", "zero-diff"]) == 0
    assert aggregator.requests == ["/api/v1/projects/zero-diff/runs"]


def test_runs_of_an_empty_aggregator_says_so(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing to list is no error and no bare title line."""
    aggregator.answer("/projects", one_page())
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == "no run has reported yet\n"


def test_runs_for_programs_joins_all_pages(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json the answer is the API's own, in one page."""
    first, second = run_answer("a"), run_answer("b", last_iteration=None)
    aggregator.answer("/projects/default/runs", {"items": [first], "next": "a"})
    aggregator.answer("/projects/default/runs?after=a", {"items": [second], "next": None})
    assert main(["runs", "--project", "default", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == one_page(first, second)


TOTALS = {
    "project": "default",
    "run": "qwen3",
    "attempts": "effective",
    "rank": None,
    "keys": {
        "training/rollout_logprobs_mismatch_count": {
            "value": 2**60,
            "rule": "sum",
            "series": "training/rollout_logprobs",
            "count": 2**60,
            "valid": 2**61,
            "nonfinite": 0,
            "sum": 0.125,
            "max": 7.450580596923828e-09,
        },
        "actor/pg_loss/mean": {
            "value": 0.25,
            "rule": "mean",
            "series": None,
            "count": 8,
            "valid": None,
            "nonfinite": 1,
            "sum": 2.0,
            "max": None,
            "weight": 4096,
        },
    },
}


def test_totals_shows_values_and_what_they_were_folded_from(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each key has a line; what does not exist is a dash."""
    aggregator.answer("/projects/default/runs/qwen3/totals", TOTALS)
    assert main(["totals", "qwen3"]) == 0
    assert capsys.readouterr().out == (
        "key                                       rule                      value"
        "                      count                      valid  nonfinite    sum          max\n"
        "training/rollout_logprobs_mismatch_count  sum   1,152,921,504,606,846,976"
        "  1,152,921,504,606,846,976  2,305,843,009,213,693,952          0  0.125  7.45058e-09\n"
        "actor/pg_loss/mean                        mean                       0.25"
        "                          8                          -          1      2            -\n"
    )


def test_totals_asks_for_attempts_and_rank(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """The options are the API's parameters, and --json keeps every digit."""
    aggregator.answer("/projects/default/runs/qwen3/totals?attempts=all&rank=0", TOTALS)
    assert main(["totals", "qwen3", "--attempts", "all", "--rank", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == TOTALS


def test_totals_of_a_run_without_keys_says_so(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that only became known has nothing to fold."""
    aggregator.answer("/projects/default/runs/qwen3/totals", TOTALS | {"keys": {}})
    assert main(["totals", "qwen3"]) == 0
    assert capsys.readouterr().out == "the run has reported neither partials nor scalars\n"


def test_ranks_shows_what_is_missing_and_who_never_reported(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank that never reported has its line too, with nothing but dashes for counts."""
    reported = {
        "rank": 0,
        "attempt": 1,
        "last_iteration": 12,
        "last_report": time.time() - 7300,
        "dropped": 3,
        "missing": [{}, {}],
        "keys": {"s_mismatch_count": 1200, "s_diff_max": 0.5},
    }
    silent = reported | {"rank": 1, "last_iteration": None, "last_report": None, "dropped": 0}
    aggregator.answer(
        "/projects/default/runs/qwen3/ranks", one_page(reported, silent | {"keys": {}})
    )
    assert main(["ranks", "qwen3"]) == 0
    assert capsys.readouterr().out == (
        "rank  attempt  last iteration  last report  missing  dropped  s_mismatch_count\n"
        "   0        1              12      2 h ago        2        3             1,200\n"
        "   1        1               -        never        2        0                 -\n"
    )


def test_ranks_of_a_run_without_ranks_says_so(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """No rank is no error."""
    aggregator.answer("/projects/default/runs/qwen3/ranks", one_page())
    assert main(["ranks", "qwen3"]) == 0
    assert capsys.readouterr().out == "no rank has reported yet\n"


def test_worst_shows_digits_that_tell_neighbours_apart(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str], partial_run: dict[str, Any]
) -> None:
    """Log-probs one ULP apart look different; non-finite ones are words."""
    (token,) = partial_run["worst"]
    nonfinite = {**token, "a": "NaN", "position": [0, 7], "ulp": 0}
    del nonfinite["token_id"]
    aggregator.answer("/projects/default/runs/qwen3/worst?limit=20", one_page(nonfinite, token))
    assert main(["worst", "qwen3"]) == 0
    assert capsys.readouterr().out == (
        "series                     attempt  rank  iteration  microbatch"
        "  position             a             b  ulp  token_id\n"
        "training/rollout_logprobs        0     1          2           5"
        "      0, 7           NaN  -0.693147123    0         -\n"
        "training/rollout_logprobs        0     1          2           5"
        "   3, 1017  -0.693147182  -0.693147123    1      2048\n"
    )


def test_worst_prints_at_most_the_limit(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str], partial_run: dict[str, Any]
) -> None:
    """A limit cuts the list, for programs too, and the answer says where it goes on."""
    cut = {"items": partial_run["worst"] * 2, "next": 1}
    aggregator.answer("/projects/default/runs/qwen3/worst?limit=2", cut)
    assert main(["worst", "qwen3", "--limit", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == cut


def test_worst_of_a_clean_run_says_so(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """No mismatch is good news, in words."""
    aggregator.answer("/projects/default/runs/qwen3/worst?limit=20", one_page())
    assert main(["worst", "qwen3"]) == 0
    assert capsys.readouterr().out == "no mismatch was reported with its position\n"
