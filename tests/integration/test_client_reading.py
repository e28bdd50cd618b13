"""A trainer that reads back what all ranks reported, from the aggregator itself."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path

import pytest

import rankfold_client as rf
from rankfold.errors import Forbidden
from support.server import Server

SERIES = "s"
CLEAN = rf.Partial(valid=4, count=0, max=0.0, sum=0.0)
WRONG = rf.Partial(valid=4, count=1, max=0.5, sum=0.5)
SOON, NOW = 30.0, 0.2


def ranks(server: Server, run: str, number: int = 2) -> list[rf.Reporter]:
    """Return a reporter for each rank."""
    return [rf.Reporter(run, url=server.url, rank=r, world_size=number) for r in range(number)]


def report(reporter: rf.Reporter, partial: rf.Partial = CLEAN) -> None:
    """Report one iteration of one microbatch."""
    reporter.partial(SERIES, partial)
    reporter.scalar("loss", float("nan"), rule="last")
    reporter.end_iteration()


def close(reporters: list[rf.Reporter]) -> None:
    """Close every reporter, rank 0 last."""
    assert sum(reporter.close(timeout=SOON) for reporter in reversed(reporters)) == 0


def test_rank_waits_for_the_others(server: Server, run: str) -> None:
    """Totals and verdict of an iteration come as soon as the slowest rank have reported it."""
    first, second = reporters = ranks(server, run)
    report(first)
    late = threading.Timer(0.3, report, (second, WRONG))
    late.start()
    folded = first.folded(0, SOON)
    assert (folded["iteration"], folded["complete"]) == (0, True)
    assert folded["keys"]["s_mismatch_count"] == 1
    assert folded["keys"]["s_diff_mean"] == 0.5 / 8
    assert folded["keys"]["loss"] is None
    assert first.folded(0, SOON, keys=["s_valid_count"])["keys"] == {"s_valid_count": 8}
    verdict = second.wait_gate(0, SOON)
    assert (verdict["gate"], verdict["series"]["s"]["mismatch_count"]) == ("fail", 1)
    assert second.wait_gate(0, SOON, max_mismatch_count=1)["gate"] == "pass"
    late.join()
    close(reporters)


def test_rank_may_wait_for_as_long_as_it_takes(server: Server, run: str) -> None:
    """Infinity is a time like others, of each wait."""
    with rf.Reporter(run, url=server.url, rank=0, world_size=1, timeout=math.inf) as reporter:
        report(reporter)
        assert reporter.folded(0, math.inf)["keys"]["s_valid_count"] == 4
        assert reporter.wait_gate(0, math.inf)["gate"] == "pass"
        assert reporter.flush(math.inf) == 0
        assert reporter.close(math.inf) == 0


def test_verdict_on_what_is_missing_is_incomplete(server: Server, run: str) -> None:
    """A rank that does not come is named in time; its totals are a timeout."""
    first, second = reporters = ranks(server, run)
    report(first)
    verdict = first.wait_gate(0, NOW)
    assert (verdict["gate"], verdict["ranks"]["missing"]) == ("incomplete", [1])
    with pytest.raises(TimeoutError, match=r"is not complete: it lacks the end of it from rank 1$"):
        first.folded(0, NOW)
    report(second)
    assert first.wait_gate(0, SOON)["gate"] == "pass"
    close(reporters)


def test_timeout_says_what_is_missing(server: Server, run: str) -> None:
    """Which ranks have not ended an iteration, and which microbatches are not there."""
    reporters = ranks(server, run, 14)
    for rank, reporter in enumerate(reporters[:3]):
        reporter.partial(SERIES, CLEAN)
        if rank:
            reporter.partial("t", CLEAN)
        reporter.end_iteration(1 + rank)
        reporter.flush(SOON)
    with pytest.raises(TimeoutError) as caught:
        reporters[0].folded(0, NOW)
    assert str(caught.value) == (
        "iteration 0 is not complete: it lacks microbatch 0 of 't' from rank 0; microbatch 1 of "
        "'s' from rank 1; microbatch 1 of 't' from rank 1; microbatches 1, 2 of 's' from rank 2; "
        "microbatches 1, 2 of 't' from rank 2; the end of it from ranks 3, 4, 5, 6, 7, 8, 9, 10, "
        "11, 12 and more"
    )
    with rf.Reporter(run, url=server.url, rank=0, iteration=9, reports=False) as silent:
        silent.end_iteration()
        with pytest.raises(TimeoutError, match="9 is not complete: 0 of 14 ranks have reported"):
            silent.folded(9, NOW)
    close(reporters)


def test_verdict_of_a_mismatch_waits_for_nobody(server: Server, run: str) -> None:
    """What no later report can mend is told at once, though a rank is missing."""
    first, _ = reporters = ranks(server, run)
    report(first, WRONG)
    started = time.monotonic()
    assert first.wait_gate(0, 60.0)["gate"] == "fail"
    assert time.monotonic() - started < 30.0
    # A mean may still come down.
    assert first.wait_gate(0, NOW, max_mismatch_count=9, max_diff_mean=0.1)["gate"] == "fail"
    close(reporters)


def test_verdict_is_about_the_iterations_up_to_one(server: Server, run: str) -> None:
    """Later iterations change nothing, and earlier ones may be left out."""
    (reporter,) = reporters = ranks(server, run, 1)
    for partial in (WRONG, CLEAN, WRONG):
        report(reporter, partial)
    assert reporter.wait_gate(1, SOON)["series"]["s"]["mismatch_count"] == 1
    assert reporter.wait_gate(1, SOON, first=1)["gate"] == "pass"
    assert reporter.wait_gate(2, SOON, series=["s"], first=1)["gate"] == "fail"
    close(reporters)


def test_verdict_allows_for_a_series_that_is_not_measured_each_time(
    server: Server, run: str
) -> None:
    """An iteration without a series is a gap unless the caller says that it is none."""
    (reporter,) = reporters = ranks(server, run, 1)
    report(reporter)
    reporter.end_iteration(1)
    for _ in range(2):
        assert reporter.wait_gate(1, SOON, allow_absent=True)["gate"] == "pass"
        assert reporter.wait_gate(1, NOW)["gate"] == "incomplete"
    silent = rf.Reporter(run, url=server.url, rank=0, world_size=1, iteration=5, reports=False)
    silent.end_iteration()
    with pytest.raises(TimeoutError, match="iteration 5 is not complete: 0 of 1 ranks have rep"):
        silent.wait_gate(5, NOW, allow_absent=True)
    close(reporters)


def test_rank_does_not_wait_for_itself(server: Server, run: str) -> None:
    """An iteration that this rank has not ended would never be complete."""
    (reporter,) = reporters = ranks(server, run, 1)
    for call in (reporter.folded, reporter.wait_gate):
        with pytest.raises(ValueError, match=r"iteration 0 is not over .* call end_iteration\(\)"):
            call(0)
    close(reporters)


def test_copy_that_reports_nothing_reads_what_the_other_reported(server: Server, run: str) -> None:
    """All copies of a shard may stop on the same verdict, though one of them reports."""
    (reporter,) = reporters = ranks(server, run, 1)
    with rf.Reporter(run, url=server.url, rank=0, world_size=1, reports=False) as silent:
        report(silent, WRONG)
        with pytest.raises(ValueError, match="series"):
            silent.partial("", CLEAN)
        with pytest.raises(TimeoutError, match=r"there is no answer: .*|has reported it"):
            silent.wait_gate(0, NOW)
        report(reporter)
        assert silent.wait_gate(0, SOON)["gate"] == "pass"
        assert (silent.flush(), silent.dropped) == (0, 0)
    with pytest.raises(RuntimeError, match="closed"):
        report(silent)
    close(reporters)
    assert server.get(run, "gate", require_finished=True)["gate"] == "pass"


def test_reading_without_an_aggregator_is_a_timeout(run: str) -> None:
    """Nobody there: in its time, an error that says where it asked."""
    reporter = rf.Reporter(run, url="http://127.0.0.1:9", rank=0, world_size=1)
    report(reporter)
    with pytest.raises(TimeoutError, match=r"http://127\.0\.0\.1:9: ConnectionRefused"):
        reporter.wait_gate(0, NOW)
    reporter.close(0.0)


def test_reading_needs_a_token_that_may_read(tmp_path: Path, run: str) -> None:
    """A token that may only report is told what it lacks, and at once."""
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(
        '[[token]]\nname = "w"\ntoken = "writes-and-nothing-else"\nscopes = ["write"]\n'
        '[[token]]\nname = "rw"\ntoken = "reads-and-writes-too"\nscopes = ["read", "write"]\n'
    )
    with Server("memory://", "--tokens", str(tokens)) as server:
        for iteration, token in enumerate(("writes-and-nothing-else", "reads-and-writes-too")):
            reporter = rf.Reporter(run, url=server.url, token=token, iteration=iteration)
            report(reporter)
            if iteration == 0:
                with pytest.raises(
                    rf.RankfoldError, match="a token with the scope read"
                ) as refused:
                    reporter.folded(0, SOON)
                assert isinstance(refused.value, Forbidden)
            else:
                assert reporter.folded(1, SOON)["keys"]["s_valid_count"] == 4
            close([reporter])
