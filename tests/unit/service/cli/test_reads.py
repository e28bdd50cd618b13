"""`rankfold runs`, `totals`, `ranks` and `worst` print what the API answers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from rankfold_service.cli.main import main
from unit.service.cli.canned import CannedAggregator

ATTEMPT = {
    "attempt": 0,
    "world_size": 2,
    "finished": False,
    "first_report": 1.5,
    "last_report": 2.5,
    "first_iteration": 0,
    "last_iteration": 12000,
    "superseded_from": None,
    "reporting": 2,
    "dropped": 0,
    "conflicts": 0,
    "meta": {},
}


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


def ranks_page(*items: Any) -> dict[str, Any]:
    """Return ranks that fit on one page."""
    return one_page(*items) | {"missing_until": None}


def named(*names: str) -> list[dict[str, Any]]:
    """Return projects as lists show them."""
    return [{"project": name, "runs": 1} for name in names]


def test_runs_lists_those_of_all_projects(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a project every run is shown, a line each."""
    aggregator.answer("/projects", one_page(*named("default", "zero diff")))
    aggregator.answer("/projects/default/runs", one_page(run_answer("qwen3")))
    other = run_answer(
        "llama",
        project="zero diff",
        state="finished",
        attempts=[ATTEMPT, ATTEMPT | {"attempt": 1, "reporting": 7}],
        world_size=None,
        last_iteration=None,
        gate="no_data",
    )
    aggregator.answer("/projects/zero%20diff/runs", one_page(other))
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == (
        "project    run    gate     state     attempts   ranks  last iteration  last report\n"
        "default    qwen3  pass     running          0  2 of 2           12000    3 min ago\n"
        "zero diff  llama  no_data  finished       0-1  7 of ?               -    3 min ago\n"
    )


def test_runs_of_one_project_asks_for_no_other(aggregator: CannedAggregator) -> None:
    """A project that is given is the only one that is read."""
    aggregator.answer("/projects/zero-diff/runs", one_page(run_answer("qwen3")))
    assert main(["runs", "--project", "zero-diff"]) == 0
    assert aggregator.requests == ["/api/v1/projects/zero-diff/runs"]


@pytest.mark.parametrize(
    ("following", "more"),
    [
        (None, "no project 'nope' is known; known are: a, b\n"),
        ("b", "known are: a, b, c, c, c and more\n"),
    ],
)
def test_runs_of_an_unknown_project_says_which_are_known(
    aggregator: CannedAggregator,
    capsys: pytest.CaptureFixture[str],
    following: str | None,
    more: str,
) -> None:
    """A mistyped project is no aggregator without reports, and exit 1."""
    aggregator.answer("/projects/nope/runs", one_page())
    aggregator.answer("/projects?limit=5", {"items": named("a", "b"), "next": following})
    aggregator.answer("/projects?limit=3&after=b", {"items": named(*"ccc"), "next": "c"})
    assert main(["runs", "--project", "nope"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.startswith("rankfold runs: no project 'nope'")) == ("", True)
    assert err.endswith(more)
    assert main(["runs", "--project", "nope", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == one_page()


@pytest.mark.parametrize("width", [80, 100])
def test_runs_keeps_names_whole_on_a_terminal(
    aggregator: CannedAggregator,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> None:
    """A run's name can be copied; its project stands once above its runs."""
    monkeypatch.setenv("COLUMNS", str(width))
    project, run = "p" * 45, "qwen3-235b-a22b-zero-diff-ablation-lr1e-6-run"
    runs = one_page(*(run_answer(f"{run}{end}", project=project) for end in "12"))
    aggregator.answer(f"/projects/{project}/runs", runs)
    assert main(["runs", "--project", project]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == project
    assert [line.split()[:3] for line in lines[2:4]] == [
        [f"{run}{end}", "pass", "running"] for end in "12"
    ]
    assert max(map(len, lines)) <= width
    assert lines[-1].startswith("no room for: ")


@pytest.mark.parametrize("options", [[], ["--project", "mine"]])
def test_runs_of_an_empty_aggregator_says_so(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """Nothing to list is no error and no bare title line."""
    for target in ("/projects", "/projects?limit=5", "/projects/mine/runs"):
        aggregator.answer(target, one_page())
    assert main(["runs", *options]) == 0
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


def test_runs_says_which_are_damaged(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the aggregator names apart is told beside the others, and is in the answer."""
    page = one_page(run_answer("a")) | {"damaged": [{"project": "default", "run": "b"}]}
    aggregator.answer("/projects/default/runs", page)
    assert main(["runs", "--project", "default"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert err.startswith("rankfold runs: ")
    assert err.endswith(": default/b\n")
    assert main(["runs", "--project", "default", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == page
    aggregator.answer("/projects/worse/runs", page | {"items": []})
    assert main(["runs", "--project", "worse"]) == 0
    assert capsys.readouterr().out == "no run can be read\n"


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


RANK = {
    "rank": 0,
    "attempt": 1,
    "last_iteration": 12,
    "last_report": 0.0,
    "dropped": 0,
    "missing": [],
    "keys": {},
}


def test_totals_of_a_rank_that_never_reported_says_which_have(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank that is expected and silent is told from one that has nothing to fold."""
    target = "/projects/default/runs/qwen3"
    ranks = [*(RANK | {"rank": rank} for rank in range(4)), RANK | {"rank": 9, "last_report": None}]
    aggregator.answer(f"{target}/ranks", ranks_page(*ranks))
    for rank in (9, 3):
        aggregator.answer(f"{target}/totals?rank={rank}", TOTALS | {"keys": {}})
    assert main(["totals", "qwen3", "--rank", "9"]) == 1
    assert capsys.readouterr() == (
        "",
        "rankfold totals: rank 9 has reported nothing; ranks that have: 0-3\n",
    )
    assert main(["totals", "qwen3", "--rank", "3"]) == 0
    assert capsys.readouterr().out == "rank 3 has reported neither partials nor scalars\n"


@pytest.mark.parametrize("width", [80, 100])
def test_totals_keeps_keys_whole_on_a_terminal(
    aggregator: CannedAggregator,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> None:
    """Each key stands with its rule and value; what has no room is named."""
    monkeypatch.setenv("COLUMNS", str(width))
    series = "training/rollout_logprobs/of_the_reference_ab"
    whole = {**TOTALS["keys"]["training/rollout_logprobs_mismatch_count"], "count": 12, "value": 12}
    mean = whole | {"rule": "mean", "value": 7.450580596923828e-09}
    keys = {f"{series}_mismatch_count": whole, f"{series}_diff_mean": mean}
    aggregator.answer("/projects/default/runs/qwen3/totals", TOTALS | {"keys": keys})
    assert main(["totals", "qwen3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [
        [f"{series}_mismatch_count", "sum", "12"],
        [f"{series}_diff_mean", "mean", "7.45058e-09"],
    ]
    assert max(map(len, lines)) <= width


def restarted(aggregator: CannedAggregator, effective: int, everything: int) -> None:
    """Let a run have two attempts, of which the first is superseded in part."""
    target = "/projects/default/runs/qwen3"
    attempts = [ATTEMPT | {"superseded_from": 3}, ATTEMPT]
    aggregator.answer(target, run_answer("qwen3", attempts=attempts))
    aggregator.answer(f"{target}/ranks", ranks_page())
    keys = TOTALS["keys"]
    name = "training/rollout_logprobs_mismatch_count"
    for query, count in (("effective", effective), ("all", everything)):
        folded = TOTALS | {"keys": keys | {name: {**keys[name], "count": count}}}
        aggregator.answer(f"{target}/totals?attempts={query}", folded)
    aggregator.answer(f"{target}/totals", TOTALS)


@pytest.mark.parametrize("command", ["totals", "ranks"])
@pytest.mark.parametrize(
    ("everything", "note"),
    [
        (2, ""),
        (3, "superseded attempts hold 1 more mismatch: --attempts all shows them\n"),
        (7, "superseded attempts hold 5 more mismatches: --attempts all shows them\n"),
    ],
)
def test_reads_say_where_superseded_attempts_hold_more(
    aggregator: CannedAggregator,
    capsys: pytest.CaptureFixture[str],
    command: str,
    everything: int,
    note: str,
) -> None:
    """What a restart superseded stays findable, without a word where there is nothing."""
    restarted(aggregator, 2, everything)
    assert main([command, "qwen3"]) == 0
    assert capsys.readouterr().err == (note and f"rankfold {command}: {note}")


def test_reads_of_chosen_attempts_ask_nothing_more(aggregator: CannedAggregator) -> None:
    """Who names attempts, or is a program, gets no note and costs no further read."""
    restarted(aggregator, 2, 7)
    assert main(["totals", "qwen3", "--attempts", "all"]) == 0
    assert main(["totals", "qwen3", "--json"]) == 0
    assert len(aggregator.requests) == 2


def test_ranks_asks_for_attempts(aggregator: CannedAggregator) -> None:
    """The option is the API's parameter."""
    aggregator.answer("/projects/default/runs/qwen3/ranks?attempts=1", ranks_page(RANK))
    assert main(["ranks", "qwen3", "--attempts", "1"]) == 0


@pytest.mark.parametrize("width", [80, 100])
def test_ranks_names_series_whole_below_a_narrow_table(
    aggregator: CannedAggregator,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> None:
    """The counts' titles are numbers that a legend explains."""
    monkeypatch.setenv("COLUMNS", str(width))
    key = "training/rollout_logprobs/of_the_reference_ab_mismatch_count"
    aggregator.answer(
        "/projects/default/runs/qwen3/ranks", ranks_page(RANK | {"keys": {key: 1234567}})
    )
    assert main(["ranks", "qwen3"]) == 0
    titles, row, legend = capsys.readouterr().out.splitlines()
    assert (titles.split()[-1], row.split()[-1], legend) == ("#1", "1,234,567", f"#1  {key}")
    assert max(map(len, (titles, row))) <= width


def test_ranks_shows_what_is_missing_and_who_never_reported(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank that never reported has its line too, with nothing but dashes for counts."""
    owed = {"iteration": 3, "attempt": 1, "rank": 0, "series": "s", "microbatches": [1]}
    reported = {
        "rank": 0,
        "attempt": 1,
        "last_iteration": 12,
        "last_report": time.time() - 7300,
        "dropped": 3,
        "missing": [owed, owed],
        "keys": {"s_mismatch_count": 1200, "s_diff_max": 0.5},
    }
    silent = reported | {"rank": 1, "last_iteration": None, "last_report": None, "dropped": 0}
    aggregator.answer(
        "/projects/default/runs/qwen3/ranks", ranks_page(reported, silent | {"keys": {}})
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
    aggregator.answer("/projects/default/runs/qwen3/ranks", ranks_page())
    assert main(["ranks", "qwen3"]) == 0
    assert capsys.readouterr().out == "no rank has reported yet\n"


def test_worst_shows_digits_that_tell_neighbours_apart(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str], partial_run: dict[str, Any]
) -> None:
    """Log-probs one ULP apart look different; non-finite ones are words, no steps away."""
    (token,) = partial_run["worst"]
    nonfinite = {**token, "a": "NaN", "position": [0, 7], "ulp": 0}
    del nonfinite["token_id"]
    aggregator.answer(
        "/projects/default/runs/qwen3/worst?attempts=all&limit=20", one_page(nonfinite, token)
    )
    assert main(["worst", "qwen3"]) == 0
    assert capsys.readouterr().out == (
        "series                     attempt  rank  iteration  microbatch"
        "  position             a             b  ulp  token_id\n"
        "training/rollout_logprobs        0     1          2           5"
        "      0, 7           NaN  -0.693147123    -         -\n"
        "training/rollout_logprobs        0     1          2           5"
        "   3, 1017  -0.693147182  -0.693147123    1      2048\n"
    )


def test_worst_prints_at_most_the_limit(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str], partial_run: dict[str, Any]
) -> None:
    """A limit cuts the list, for programs too, and the answer says where it goes on."""
    cut = {"items": partial_run["worst"] * 2, "next": 1}
    aggregator.answer("/projects/default/runs/qwen3/worst?attempts=all&limit=2", cut)
    assert main(["worst", "qwen3", "--limit", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == cut


def test_worst_of_a_clean_run_says_so(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """No mismatch is good news, in words."""
    aggregator.answer("/projects/default/runs/qwen3/worst?attempts=all&limit=20", one_page())
    assert main(["worst", "qwen3"]) == 0
    assert capsys.readouterr().out == "no mismatch was reported with its position\n"


def test_worst_asks_for_attempts(aggregator: CannedAggregator) -> None:
    """All attempts count unless others are asked for."""
    aggregator.answer("/projects/default/runs/qwen3/worst?attempts=effective&limit=20", one_page())
    assert main(["worst", "qwen3", "--attempts", "effective"]) == 0


@pytest.mark.parametrize("width", [80, 100])
def test_worst_names_series_whole_on_a_terminal(
    aggregator: CannedAggregator,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    partial_run: dict[str, Any],
    width: int,
) -> None:
    """A series stands once over its tokens, and the two values stay."""
    monkeypatch.setenv("COLUMNS", str(width))
    series = "training/rollout_logprobs/of_the_reference_ab"
    token = {**partial_run["worst"][0], "series": series, "sample": "x" * 80}
    target = "/projects/default/runs/qwen3/worst?attempts=all&limit=20"
    aggregator.answer(target, one_page(token, token))
    assert main(["worst", "qwen3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == series
    assert all("-0.693147182  -0.693147123" in line for line in lines[2:4])
    assert max(map(len, lines)) <= width


def test_runs_gives_no_advice_to_run_itself(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not known is told; where runs are listed is what was just asked."""
    aggregator.problem("/projects/p/runs", 404, "not_found", "nothing is known of p")
    assert main(["runs", "--project", "p"]) == 1
    assert capsys.readouterr() == ("", "rankfold runs: nothing is known of p\n")
