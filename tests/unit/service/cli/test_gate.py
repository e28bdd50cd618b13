"""`rankfold gate` prints the verdict, exits with it, and waits until it is final."""

from __future__ import annotations

import argparse
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest

from rankfold.errors import (
    Forbidden,
    NotFound,
    Overloaded,
    RankfoldError,
    Unreachable,
)
from rankfold_service.cli.api import Answer
from rankfold_service.cli.gate import Question, wait_for_verdict
from rankfold_service.cli.main import main
from rankfold_service.cli.text import Screen
from rankfold_service.cli.verdict import verdict_text
from unit.service.cli.canned import CannedAggregator

TARGET = "/projects/default/runs/qwen3/gate"


def test_gate_prints_a_failure_with_all_that_explains_it(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str], partial_run: dict[str, Any]
) -> None:
    """The verdict and its reasons come first, then series, coverage and the worst tokens."""
    aggregator.answer(TARGET, partial_run)
    assert main(["gate", "qwen3"]) == 1
    assert capsys.readouterr().out == (
        "fail  default/qwen3 (running)\n"
        "  training/rollout_logprobs: 1 of 32768 positions mismatch\n"
        "  1 iterations are incomplete: 3 (ranks 1)\n"
        "\n"
        "series                     mismatch_count  valid_count  nonfinite_count"
        "     diff_max    diff_mean\n"
        "training/rollout_logprobs               1       32,768                0"
        "  7.45058e-09  2.27374e-13\n"
        "\n"
        "iterations  0 to 3: 3 complete, 1 incomplete, 0 absent\n"
        "incomplete  iteration 3\n"
        "ranks       2 of 2 reported (expected by the world size)\n"
        "missing     iteration 3, attempt 0, rank 0: its commit\n"
        "missing     iteration 3, attempt 0, rank 1: microbatch 6, 7 of training/rollout_logprobs\n"
        "conflicts   1\n"
        "conflict    iteration 2, attempt 0, rank 1: partial training/rollout_logprobs: "
        "microbatch 0 was reported with other content\n"
        "dropped     0\n"
        "\n"
        "worst tokens\n"
        "series                     attempt  rank  iteration  microbatch"
        "  position             a             b  ulp  token_id\n"
        "training/rollout_logprobs        0     1          2           5"
        "   3, 1017  -0.693147182  -0.693147123    1      2048\n"
    )


def test_gate_prints_a_pass_briefly(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str], clean_run: dict[str, Any]
) -> None:
    """What is not there is not talked about."""
    aggregator.answer(TARGET, clean_run)
    assert main(["gate", "qwen3"]) == 0
    assert capsys.readouterr().out == (
        "pass  default/qwen3 (finished)\n"
        "  32768 positions compared in 4 complete iterations\n"
        "\n"
        "series                     mismatch_count  valid_count  nonfinite_count"
        "  diff_max  diff_mean\n"
        "training/rollout_logprobs               0       32,768                0"
        "         0          0\n"
        "\n"
        "iterations  0 to 3: 4 complete, 0 incomplete, 0 absent\n"
        "ranks       2 of 2 reported (expected by the world size)\n"
        "conflicts   0\n"
        "dropped     0\n"
    )


def test_gate_prints_long_lists_in_part(partial_run: dict[str, Any]) -> None:
    """A thousand gaps are a count and the first of them."""
    answer = partial_run | {
        "live": True,
        "series": {},
        "worst": [],
        "conflict_details": [],
        "iterations": {
            "first": 0,
            "last": 1999,
            "complete": 997,
            "incomplete": list(range(100)),
            "incomplete_count": 1000,
            "absent": [5],
            "absent_count": 1,
            "in_progress": [1998, 1999],
        },
        "ranks": {"expected": 4, "expected_from": "reports", "reporting": 3, "missing": [2]},
        "missing": [
            {"iteration": i, "attempt": 0, "rank": 2, "series": "s", "microbatches": []}
            for i in range(12)
        ],
    }
    lines = verdict_text(answer, Screen()).splitlines()
    assert lines[0] == "fail  default/qwen3 (running, live)"
    assert lines[4:] == [
        "iterations  0 to 1999: 997 complete, 1,000 incomplete, 1 absent",
        f"incomplete  iterations {', '.join(map(str, range(20)))} and 980 more",
        "absent      iteration 5",
        "in progress iterations 1998, 1999",
        "ranks       3 of 4 reported (expected by those that reported)",
        "missing     rank 2",
        *(f"missing     iteration {i}, attempt 0, rank 2: all of it of s" for i in range(10)),
        "missing     and 2 more",
        "conflicts   1",
        "dropped     0",
    ]


def test_gate_says_of_rank_0_that_it_is_missing(partial_run: dict[str, Any]) -> None:
    """A rank's number is never read as a count of missing ranks."""
    ranks = {"expected": 3, "expected_from": "world_size", "reporting": 2, "missing": [0]}
    assert "\nmissing     rank 0\n" in verdict_text(partial_run | {"ranks": ranks}, Screen())
    ranks |= {"reporting": 1, "missing": [0, 2]}
    assert "\nmissing     ranks 0, 2\n" in verdict_text(partial_run | {"ranks": ranks}, Screen())


@pytest.mark.parametrize("width", [80, 100])
def test_gate_keeps_names_whole_on_a_terminal(partial_run: dict[str, Any], width: int) -> None:
    """A long series stands whole over its figures, and every line of theirs fits."""
    series = "training/rollout_logprobs/of_the_reference_ab"
    answer = partial_run | {"series": {series: partial_run["series"]["training/rollout_logprobs"]}}
    answer["worst"] = [{**partial_run["worst"][0], "series": series}]
    lines = verdict_text(answer, Screen(width=width)).splitlines()
    assert lines.count(series) == 2
    assert max(map(len, lines[lines.index("worst tokens") :])) <= width


def test_gate_prints_a_run_without_iterations(partial_run: dict[str, Any]) -> None:
    """A run that only became known has none."""
    none = partial_run["iterations"] | {"first": None, "last": None}
    assert "iterations  none\n" in verdict_text(partial_run | {"iterations": none}, Screen())


def test_gate_colours_the_verdict_on_a_terminal(clean_run: dict[str, Any]) -> None:
    """The word that matters stands out."""
    first = verdict_text(clean_run, Screen(colour=True)).splitlines()[0]
    assert first == "\x1b[32mpass\x1b[0m  default/qwen3 (finished)"


@pytest.mark.parametrize(
    ("gate", "code"), [("pass", 0), ("fail", 1), ("invalid", 1), ("incomplete", 3), ("no_data", 3)]
)
def test_gate_exits_with_the_verdict(
    aggregator: CannedAggregator,
    capsys: pytest.CaptureFixture[str],
    partial_run: dict[str, Any],
    gate: str,
    code: int,
) -> None:
    """Scripts read the exit code; programs get the API's answer as it is."""
    answer = partial_run | {"gate": gate}
    aggregator.answer(TARGET, answer)
    assert main(["gate", "qwen3", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == answer


def test_gate_asks_exactly_what_its_options_say(
    aggregator: CannedAggregator, clean_run: dict[str, Any]
) -> None:
    """Every option of the command is a parameter of the API."""
    target = (
        "/projects/zero-diff/runs/qwen3/gate?series=a%2Fb&series=c&from=1&to=9&attempts=2"
        "&max_mismatch_count=3&max_diff_max=1e-06&max_diff_mean=0.5"
        "&require_finished=true&allow_absent=true&live=true"
    )
    aggregator.answer(target, clean_run)
    options = "--project zero-diff --series a/b --series c --from 1 --to 9 --attempts 2"
    limits = "--max-mismatch-count 3 --max-diff-max 1e-6 --max-diff-mean .5"
    flags = "--require-finished --allow-absent --live"
    assert main(["gate", "qwen3", *f"{options} {limits} {flags}".split()]) == 0
    assert aggregator.requests == [f"/api/v1{target}"]


def test_gate_of_an_unknown_run_has_no_data(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that nobody reported is no pass and no failure."""
    aggregator.problem(TARGET, 404, "not_found", "no run 'qwen3' in project 'default'")
    assert main(["gate", "qwen3"]) == 3
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        (
            "rankfold gate: no run 'qwen3' in project 'default': "
            "'rankfold runs' lists runs and their attempts\n"
        ),
    )


@pytest.mark.parametrize(
    ("asked", "gate", "reported", "told"),
    [
        ("nope", "incomplete", True, "the run has no series nope; it has: {known}"),
        ("nope", "incomplete", False, ""),
        ("training/rollout_logprobs", "no_data", True, ""),
    ],
)
def test_gate_names_the_series_there_are(
    aggregator: CannedAggregator,
    capsys: pytest.CaptureFixture[str],
    clean_run: dict[str, Any],
    asked: str,
    gate: str,
    reported: bool,
    told: str,
) -> None:
    """A mistyped series is told from one that has no data yet."""
    series = clean_run["series"] if reported else {}
    aggregator.answer(f"{TARGET}?attempts=all", clean_run | {"series": series})
    aggregator.answer(f"{TARGET}?series={quote(asked, safe='')}", clean_run | {"gate": gate})
    assert main(["gate", "qwen3", "--series", asked]) == 3
    expected = told and f"rankfold gate: {told.format(known=', '.join(clean_run['series']))}\n"
    assert capsys.readouterr().err == expected


def test_gate_without_an_aggregator_is_not_reachable(capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing answers there is no verdict, and the error says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    assert main(["gate", "qwen3", "--url", url]) == 4
    assert capsys.readouterr().err == (
        f"rankfold gate: no aggregator answers at {url} ([Errno 111] Connection refused): "
        "is --url (RANKFOLD_URL) right? 'rankfold serve' starts an aggregator\n"
    )


def test_gate_refuses_a_verdict_that_it_does_not_know(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str], clean_run: dict[str, Any]
) -> None:
    """An answer that is no verdict never counts as a pass."""
    aggregator.answer(TARGET, clean_run | {"gate": "splendid"})
    assert main(["gate", "qwen3"]) == 4
    assert "is no aggregator: /gate: Input should be 'pass', " in capsys.readouterr().err


def test_gate_refuses_a_range_that_ends_before_it_begins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No iteration can be in it: nothing is asked."""
    assert main(["gate", "qwen3", "--from", "3", "--to", "1"]) == 2
    assert capsys.readouterr().err == "rankfold gate: --from 3 is after --to 1\n"


@pytest.mark.parametrize(
    ("gate", "state", "code", "told"),
    [
        (
            "pass",
            "running",
            0,
            "the run is running, the gate pass; wait longer, or give --require-finished",
        ),
        (
            "incomplete",
            "finished",
            3,
            "the run is finished, the gate incomplete; what is missing may never come",
        ),
    ],
)
def test_gate_says_that_a_verdict_is_not_final_when_the_time_is_up(
    aggregator: CannedAggregator,
    capsys: pytest.CaptureFixture[str],
    partial_run: dict[str, Any],
    gate: str,
    state: str,
    code: int,
    told: str,
) -> None:
    """The exit code is that of the verdict; the last line is what it lacks and what to do."""
    aggregator.answer(TARGET, partial_run | {"gate": gate, "state": state})
    assert main(["gate", "qwen3", "--wait", "0.01"]) == code
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"rankfold gate: not final after 0.01 s: {told}"


def test_gate_says_nothing_of_a_verdict_that_nobody_waited_for(
    aggregator: CannedAggregator, capsys: pytest.CaptureFixture[str], clean_run: dict[str, Any]
) -> None:
    """Without --wait the verdict is that of now; what is final needs no word."""
    aggregator.answer(TARGET, clean_run | {"state": "running"})
    assert main(["gate", "qwen3"]) == 0
    aggregator.answer(TARGET, clean_run)
    assert main(["gate", "qwen3", "--wait", "5"]) == 0
    assert "not final" not in capsys.readouterr().err


@dataclass
class Script:
    """A question whose answers are known, and a clock that only sleeping moves.

    Attributes:
        answers: what is answered, in order; the last is repeated.
        asked: when each was asked for.
    """

    answers: Sequence[Answer | RankfoldError]
    asked: list[float] = field(default_factory=list)
    time: float = 0.0

    def clock(self) -> float:
        """Return the time."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.time += seconds

    def get(self, _path: str, _shape: type, _query: object) -> Answer:
        """Answer as an aggregator would."""
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append(self.time)
        if isinstance(answer, RankfoldError):
            raise answer
        return answer

    def wait(self, seconds: float, **options: Any) -> Answer:
        """Return the verdict that the command would wait for."""
        names = (
            "project run series first last attempts max_mismatch_count max_diff_max "
            "max_diff_mean require_finished allow_absent live"
        )
        args = argparse.Namespace(**(dict.fromkeys(names.split()) | NAMED | options))
        question = Question(self, args)  # type: ignore[arg-type]
        return wait_for_verdict(question, seconds, self.clock, self.sleep)


NAMED = {"command": "gate", "project": "default", "run": "qwen3"}


def verdict(gate: str, state: str, **figures: Any) -> Answer:
    """Return an answer with what waiting looks at."""
    series = {"mismatch_count": 0, "nonfinite_count": 0, "diff_max": None} | figures
    return {"gate": gate, "state": state, "series": {"s": series}}


@pytest.mark.parametrize(
    ("gate", "state"),
    [
        ("fail", "running"),
        ("fail", "finished"),
        ("invalid", "running"),
        ("invalid", "stale"),
        ("pass", "finished"),
        ("pass", "stale"),
        ("incomplete", "stale"),
        ("no_data", "stale"),
    ],
)
def test_wait_ends_at_once_where_the_verdict_is_final(gate: str, state: str) -> None:
    """Nothing that may still arrive is waited for where it cannot matter."""
    script = Script([verdict(gate, state)])
    assert script.wait(60) == verdict(gate, state)
    assert script.asked == [0.0]


@pytest.mark.parametrize(
    ("gate", "state"),
    [
        ("pass", "running"),
        ("incomplete", "running"),
        ("no_data", "running"),
        ("incomplete", "finished"),
        ("no_data", "finished"),
    ],
)
def test_wait_goes_on_until_the_verdict_is_final(gate: str, state: str) -> None:
    """What more reports can change is asked for again."""
    script = Script([verdict(gate, state), verdict(gate, state), verdict("pass", "finished")])
    assert script.wait(60) == verdict("pass", "finished")
    assert script.asked == [0.0, 1.0, 2.0]


def test_wait_returns_the_last_verdict_when_time_is_up() -> None:
    """The wait is bounded, and its last look is at its very end."""
    script = Script([verdict("incomplete", "running")])
    assert script.wait(2.5) == verdict("incomplete", "running")
    assert script.asked == [0.0, 1.0, 2.0, 2.5]


def test_wait_of_no_time_asks_once() -> None:
    """Without --wait the verdict is that of now."""
    script = Script([verdict("pass", "running")])
    assert script.wait(0) == verdict("pass", "running")
    assert script.asked == [0.0]


@pytest.mark.parametrize(
    "error", [Unreachable("no aggregator"), NotFound("no run"), Overloaded("too much", 1.0)]
)
def test_wait_bears_with_what_is_not_there_yet(error: RankfoldError) -> None:
    """An aggregator that starts up and a run that begins later are waited for."""
    script = Script([error, error, verdict("pass", "finished")])
    assert script.wait(60) == verdict("pass", "finished")
    assert script.asked == [0.0, 1.0, 2.0]


def test_wait_does_as_it_is_told_by_a_busy_aggregator() -> None:
    """Retry-After is honoured."""
    script = Script([Overloaded("too much", 7.0), verdict("pass", "finished")])
    script.wait(60)
    assert script.asked == [0.0, 7.0]


def test_wait_raises_the_last_error_when_time_is_up() -> None:
    """What was not there for the whole time is the outcome."""
    script = Script([Unreachable("no aggregator"), NotFound("no run")])
    with pytest.raises(NotFound, match="no run"):
        script.wait(1.5)


def test_wait_does_not_bear_with_a_refusal() -> None:
    """A wrong token will not become right."""
    script = Script([Forbidden("not yours")])
    with pytest.raises(Forbidden):
        script.wait(60)
    assert script.asked == [0.0]


def test_wait_lets_a_mean_that_is_too_large_recover() -> None:
    """More positions can bring a mean down, while the run goes on."""
    high = verdict("fail", "running", mismatch_count=2, diff_max=0.25)
    script = Script([high, verdict("pass", "finished")])
    options = {"max_mismatch_count": 5, "max_diff_max": 0.5, "max_diff_mean": 0.1}
    assert script.wait(60, **options) == verdict("pass", "finished")


@pytest.mark.parametrize(
    "figures", [{"mismatch_count": 6}, {"nonfinite_count": 1}, {"diff_max": 0.75}]
)
def test_wait_ends_where_more_than_a_mean_is_exceeded(figures: dict[str, Any]) -> None:
    """No further position takes a mismatch away."""
    failed = verdict("fail", "running", **figures)
    script = Script([failed])
    options = {"max_mismatch_count": 5, "max_diff_max": 0.5, "max_diff_mean": 0.1}
    assert script.wait(60, **options) == failed
    assert script.asked == [0.0]


def test_wait_tells_what_it_waits_for_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A log of an hour's wait has a line per change, and none on standard output."""
    running = verdict("pass", "running")
    Script([NotFound("no run"), running, running, verdict("pass", "finished")]).wait(60)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "rankfold gate: waiting: no run",
        "rankfold gate: waiting: the run is running, the gate pass",
    ]
