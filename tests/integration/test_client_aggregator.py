"""The client against the aggregator itself, in a process of its own."""

from __future__ import annotations

import json
import math

import pytest
import torch

import rankfold_client as rf
from rankfold.wire import Receipt
from rankfold_client.transport import HttpTransport
from support.server import Server

SERIES = "training/rollout_logprobs"


def log_probs(rank: int, microbatch: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log-probs, the same through bfloat16, and a mask."""
    generator = torch.Generator().manual_seed(100 * rank + microbatch)
    a = -5 * torch.rand(4, 33, generator=generator)
    return a, a.bfloat16().float(), torch.rand(4, 33, generator=generator) < 0.8


def ranks(server: Server, run: str, number: int = 2, **given: int) -> list[rf.Reporter]:
    """Return a reporter for each rank."""
    return [
        rf.Reporter(run, url=server.url, rank=rank, world_size=number, **given)
        for rank in range(number)
    ]


def train(reporters: list[rf.Reporter], iterations: int, *, exact: bool = False) -> None:
    """Report iterations of two microbatches on each rank, the second rank with one more."""
    for _ in range(iterations):
        for rank, reporter in enumerate(reporters):
            for microbatch in range(2 + rank):
                a, b, mask = log_probs(rank, microbatch)
                reporter.compare(SERIES, a, a if exact else b, mask)
                reporter.scalar("loss/mean", 0.5 + microbatch, weight=4, rule="mean")
            reporter.end_iteration()


def close(reporters: list[rf.Reporter]) -> None:
    """Close every reporter, rank 0 last so that it finishes what is complete."""
    assert [reporter.close(timeout=30.0) for reporter in reversed(reporters)] == [0, 0]


def test_client_and_aggregator_agree_on_every_count(server: Server, run: str) -> None:
    """What two ranks compared is what the totals say, to the last bit."""
    reporters = ranks(server, run)
    train(reporters, 3)
    close(reporters)
    keys = server.get(run, "totals")["keys"]
    partials = [
        rf.compare(*log_probs(rank, microbatch))
        for rank in (0, 1)
        for microbatch in range(2 + rank)
    ]
    count = 3 * sum(p.count for p in partials)
    valid = 3 * sum(p.valid for p in partials)
    total = math.fsum(p.sum for p in partials for _ in range(3))
    assert keys[f"{SERIES}_mismatch_count"]["value"] == count > 0
    assert keys[f"{SERIES}_valid_count"]["value"] == valid
    assert keys[f"{SERIES}_diff_max"]["value"] == max(p.max or 0.0 for p in partials)
    assert keys[f"{SERIES}_diff_mean"]["value"] == pytest.approx(total / valid, rel=1e-15)
    assert keys[f"{SERIES}_ulp_max"]["value"] == max(p.ulp_max or 0 for p in partials)
    assert keys["loss/mean"]["value"] == (2 * 0.5 + 2 * 1.5 + 2.5) / 5
    gate = server.get(run, "gate", require_finished=True)
    assert gate["gate"] == "fail"
    assert gate["iterations"]["complete"] == 3


def test_gate_passes_what_is_equal_and_finished(server: Server, run: str) -> None:
    """Equal log-probs on every rank, all delivered and finished, pass."""
    reporters = ranks(server, run)
    train(reporters, 2, exact=True)
    close(reporters)
    assert server.get(run, "gate", require_finished=True)["gate"] == "pass"


def test_aggregator_takes_everything_that_a_comparison_can_give(server: Server, run: str) -> None:
    """Non-finite values, huge distances and empty microbatches are delivered, not given up."""
    huge = torch.tensor([1.7e308, -1.7e308, 0.0, 5e-324], dtype=torch.float64)
    odd = torch.tensor([math.nan, math.inf, -math.inf, -0.0])
    with rf.Reporter(run, url=server.url, meta={"dtype": "float64", "note": "ü"}) as reporter:
        reporter.compare("huge", huge, -huge)
        reporter.compare("odd", odd, odd.flip(0), token_ids=torch.tensor([-100, 1, 2, 3]))
        reporter.compare("none", odd, odd, torch.zeros(4), sample_ids=["x\n\ud800"])
        reporter.compare("size", torch.zeros(0), torch.zeros(0))
        for value in (math.nan, -math.inf, 1.0):
            reporter.scalar("odd/last", value, rule="last")
        reporter.scalar("all/max", 3, rule="max", global_=True)
        reporter.end_iteration()
        assert reporter.flush(timeout=30.0) == 0
    keys = server.get(run, "totals")["keys"]
    assert keys["huge_nonfinite_count"]["value"] == 2
    assert keys["odd_mismatch_count"]["value"] == 4
    assert keys["none_diff_max"]["value"] is None
    assert keys["size_valid_count"]["value"] == 0
    assert keys["odd/last"]["value"] == 1.0
    assert keys["all/max"]["value"] == 3.0


def test_client_carries_on_over_a_killed_aggregator(durable: Server, run: str) -> None:
    """A kill in the middle and a restart lose nothing and count nothing twice."""
    reporters = ranks(durable, run)
    train(reporters, 2)
    assert [reporter.flush(timeout=30.0) for reporter in reporters] == [0, 0]
    durable.kill()
    train(reporters, 2)
    assert all(reporter.flush(timeout=0.1) > 0 for reporter in reporters)
    durable.start()
    close(reporters)
    gate = durable.get(run, "gate")
    assert (gate["conflicts"], gate["iterations"]["complete"]) == (0, 4)
    keys = durable.get(run, "totals")["keys"]
    valid = sum(rf.compare(*log_probs(r, m)).valid for r in (0, 1) for m in range(2 + r))
    assert keys[f"{SERIES}_valid_count"]["value"] == 4 * valid


def test_second_attempt_supersedes_what_it_repeats(server: Server, run: str) -> None:
    """A restart from a checkpoint reports its iterations again and heals what was cut off."""
    first = ranks(server, run)
    train(first, 2, exact=True)
    first[0].compare(SERIES, *log_probs(0, 0)[:1] * 2)
    assert [reporter.close(finish=False) for reporter in first] == [0, 0]
    assert server.get(run, "gate", require_finished=False)["gate"] == "incomplete"
    second = ranks(server, run, attempt=1, iteration=1)
    train(second, 3, exact=True)
    close(second)
    gate = server.get(run, "gate", require_finished=True)
    assert (gate["gate"], gate["iterations"]["last"]) == ("pass", 3)


def test_client_reports_a_rank_that_contradicts_the_run_as_given_up(
    server: Server, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Another world size than the attempt's is refused, and the reason is in the log."""
    rf.Reporter(run, url=server.url, rank=0, world_size=2).close(finish=False)
    stray = rf.Reporter(run, url=server.url, rank=2, world_size=4)
    stray.partial(SERIES, rf.Partial(valid=1, count=0, max=0.0, sum=0.0))
    assert stray.close() == 2
    assert "given up" in caplog.text
    assert "world_size" in caplog.text


def test_run_of_any_name_is_finished(server: Server, run: str) -> None:
    """A name with everything that a URL would take for its own is reported and finished."""
    name = f"{run} ü%2F?#&+\\\"'"
    rf.Reporter(name, url=server.url, project="p%").close()
    assert server.get(name, "", project="p%")["state"] == "finished"


def test_client_refused_for_its_world_size_makes_the_run_incomplete(
    server: Server, run: str
) -> None:
    """A restart on another number of ranks that forgot to say so cannot hide its mismatches."""
    first = rf.Reporter(run, url=server.url, rank=0, world_size=1)
    a, b, _ = log_probs(0, 0)
    first.compare(SERIES, a, a)
    first.end_iteration()
    assert first.close(timeout=30.0) == 0
    assert server.get(run, "gate")["gate"] == "pass"
    again = rf.Reporter(run, url=server.url, rank=0, world_size=2, iteration=1)
    again.compare(SERIES, a, b)
    again.end_iteration()
    assert again.close(timeout=30.0) > 0
    verdict = server.get(run, "gate")
    assert (verdict["gate"], verdict["dropped"]) == ("incomplete", 3)


@pytest.mark.parametrize("token", ["", "  \n"])
def test_client_takes_an_empty_token_for_none(
    server: Server, run: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that is set to nothing is not set; a token that no header can carry is refused."""
    monkeypatch.setenv("RANKFOLD_TOKEN", token)
    assert rf.Reporter(run, url=server.url, rank=0, world_size=1).close(timeout=30.0) == 0
    with pytest.raises(ValueError, match="visible ASCII"):
        rf.Reporter(run, url=server.url, token="a b")  # noqa: S106


def test_receipts_add_up_to_what_was_sent(server: Server, run: str) -> None:
    """Whatever becomes of a partial or a scalar, the receipt has it; commits are not in it."""
    clean = {"series": SERIES, "iteration": 0, "valid": 2, "count": 0, "max": 0.0, "sum": 0.0}
    wrong = clean | {"count": 1, "max": 0.5, "sum": 0.5}
    loss = {"key": "loss", "iteration": 0, "microbatch": 0, "value": 0.5, "rule": "mean"}
    report = {
        "run": run,
        "rank": 0,
        "partials": [{**partial, "microbatch": n} for partial in (clean, wrong) for n in (0, 0, 1)],
        "scalars": [loss, loss, loss | {"value": 1.5}, loss | {"rule": "sum"}],
        "commits": [{"iteration": 0, "microbatches": n} for n in (1, 2)],
    }
    report["scalars"] += [loss | {"key": "g", "global": True}, loss | {"key": "g"}]
    transport = HttpTransport(server.url)
    for _ in range(2):
        receipt = transport.report(json.dumps(report).encode(), 12)
    assert receipt.accepted == 0
    assert transport.report(json.dumps({"run": run, "rank": 1}).encode(), 0) == Receipt()
    for _ in range(2):
        transport.finish("default", run, 0)
    transport.close()


def test_meta_is_one_for_all_ranks_of_an_attempt(server: Server, run: str) -> None:
    """Of each name the first value stays; a name for each rank keeps them apart."""
    for rank in (0, 1):
        meta = {"dtype": f"of rank {rank}", f"host/{rank}": f"node-{rank}"}
        with rf.Reporter(run, url=server.url, rank=rank, world_size=2, meta=meta) as reporter:
            assert reporter.flush(30.0) == 0
    (attempt,) = server.get(run, "")["attempts"]
    assert attempt["meta"] == {"dtype": "of rank 0", "host/0": "node-0", "host/1": "node-1"}


def test_every_report_that_is_refused_is_told_before_the_end(
    server: Server, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A run of less than a minute ends with the reason for each, not only with their number."""
    reporter = rf.Reporter(run, url=server.url, rank=0, world_size=1)
    for key in ("first", "second"):
        reporter.scalar(key, 1.0)  # no rules file has a rule for it
        reporter.flush(30.0)
    assert reporter.close(timeout=30.0) == 2
    for key in ("first", "second"):
        assert f"1 given up (key '{key}' of iteration 0: " in caplog.text
