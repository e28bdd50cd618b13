from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import rankfold_client as rf
from rankfold.errors import Unauthenticated, Unreachable
from rankfold.rules import Rule
from unit.client.fakes import FakeTransport, microbatches

CLEAN = rf.Partial(valid=4, count=0, max=0.0, sum=0.0)
A, B = torch.zeros(2, 3), torch.ones(2, 3)


def reporter(transport: FakeTransport, **given: Any) -> rf.Reporter:
    """Return a reporter on a fake network; rank 0 of 1, attempt 0, unless given."""
    return rf.Reporter("r", transport=transport, **({"rank": 0, "world_size": 1} | given))


def commits(transport: FakeTransport) -> list[tuple[int, int]]:
    """Return (iteration, microbatches) of each commit in the order of arrival."""
    columns = [report["commits"] for report in transport.accepted if "commits" in report]
    return [p for c in columns for p in zip(c["iteration"], c["microbatches"], strict=True)]


def test_reporter_makes_its_run_known_at_once() -> None:
    """The first report says who is there, before there is anything to report."""
    transport = FakeTransport()
    with reporter(transport, project="p", attempt=2, meta={"dtype": "bf16"}):
        pass
    assert transport.accepted[0] == {
        "project": "p", "run": "r", "attempt": 2, "rank": 0, "world_size": 1,
        "meta": {"dtype": "bf16"},
    }  # fmt: skip
    assert transport.finished == [("p", "r", 2)]
    assert transport.closed


def test_reporter_leaves_an_unknown_world_size_out() -> None:
    """What is not known is not sent."""
    transport = FakeTransport()
    rf.Reporter("r", transport=transport, rank=5).close()
    assert transport.accepted[0] == {"project": "default", "run": "r", "attempt": 0, "rank": 5}


@pytest.mark.parametrize(
    ("said", "given", "project"),
    [
        (None, None, "default"),
        ("", None, "default"),
        ("theirs", None, "theirs"),
        ("theirs", "mine", "mine"),
    ],
)
def test_reporter_project_is_the_given_one_then_the_environments(
    said: str | None, given: str | None, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An argument wins over RANKFOLD_PROJECT, as for the commands."""
    monkeypatch.delenv("RANKFOLD_PROJECT", raising=False)
    if said is not None:
        monkeypatch.setenv("RANKFOLD_PROJECT", said)
    transport = FakeTransport()
    reporter(transport, project=given).close()
    assert transport.accepted[0]["project"] == project
    assert transport.finished == [(project, "r", 0)]


def test_reporter_takes_numbers_of_numpy_and_torch() -> None:
    """Statistics computed elsewhere arrive as plain numbers."""
    i, f = np.int64, np.float32
    worst = rf.Worst((i(0), i(1)), f(1.0), f("nan"), i(0), i(17), "x")  # type: ignore[arg-type]
    odd = rf.Partial(i(2), torch.tensor(1), f(0.5), f(0.5), i(0), f(0.25), i(3), i(4), worst)  # type: ignore[arg-type]
    transport = FakeTransport()
    with reporter(transport) as open_:
        open_.partial("s", odd, microbatch=i(2))  # type: ignore[arg-type]
        open_.scalar("k", f(0.5), weight=i(3), global_=np.bool_(True))  # type: ignore[arg-type]
    (partials,) = (report["partials"] for report in transport.accepted if "partials" in report)
    told = {"position": [0, 1], "a": 1.0, "b": "NaN", "ulp": 0, "token_id": 17, "sample": "x"}
    assert {name: column[0] for name, column in partials.items()} == {
        "series": "s", "iteration": 0, "microbatch": 2, "valid": 2, "count": 1, "nonfinite": 0,
        "max": 0.5, "sum": 0.5, "sum_sq": 0.25, "ulp_max": 3, "total": 4, "worst": told,
    }  # fmt: skip
    scalars = transport.accepted[-1]["scalars"]
    assert (scalars["value"], scalars["weight"], scalars["global"]) == ([0.5], [3], [True])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"valid": 4.0}, "valid must be an integer"),
        ({"valid": None}, "valid must be an integer"),
        ({"count": False}, "count must be an integer from 0 .* not False"),
        ({"count": np.bool_(False)}, "count must be an integer"),
        ({"nonfinite": torch.tensor(False)}, "nonfinite must be an integer"),
        ({"total": np.float64(4)}, "total must be an integer"),
        ({"ulp_max": -1}, "ulp_max must be an integer from 0"),
        ({"sum": "0"}, "sum must be a number, not '0'"),
        ({"sum": False}, "sum must be a number, not False"),
        ({"sum": None}, "sum must be a number"),
        ({"max": 1j}, "max must be a number"),
        ({"sum_sq": math.nan}, "sum_sq: must be finite"),
        (
            {"count": 4, "nonfinite": 4, "max": None, "sum": 0.5},
            "sum: must be 0 where no position is finite",
        ),
        ({"worst": (0, 0)}, "worst must be a Worst, not tuple"),
        ({"worst": rf.Worst((0,), 0.0, 1.0, 0)}, "worst.position must be a row and a column"),  # type: ignore[arg-type]
        ({"worst": rf.Worst((0, 0.5), 0.0, 1.0, 0)}, "worst.position must be an integer"),  # type: ignore[arg-type]
        ({"worst": rf.Worst((0, 0), None, 1.0, 0)}, "worst.a must be a number"),  # type: ignore[arg-type]
        ({"worst": rf.Worst((0, 0), 0.0, 1.0, 0, 1.5)}, "worst.token_id must be"),  # type: ignore[arg-type]
        ({"worst": rf.Worst((0, 0), 0.0, 1.0, 0, 1, 2)}, "worst.sample must be"),  # type: ignore[arg-type]
    ],
)
def test_reporter_refuses_statistics_that_are_no_numbers(
    change: dict[str, Any], words: str
) -> None:
    """What could not be sent as the contract says is a ValueError at the call."""
    with reporter(FakeTransport()) as open_, pytest.raises(ValueError, match=words):
        open_.partial("s", replace(CLEAN, **change))


def test_reporter_counts_microbatches_and_iterations() -> None:
    """Each series counts its calls, and a commit says the largest number."""
    transport = FakeTransport()
    with reporter(transport) as open_:
        for iteration in range(2):
            for _ in range(3):
                open_.compare("s", A, B)
            open_.partial("t", CLEAN)
            assert open_.iteration == iteration
            open_.end_iteration()
        open_.end_iteration()
    places = [(0, 0), (0, 1), (0, 2), (0, 0), (1, 0), (1, 1), (1, 2), (1, 0)]
    assert microbatches(transport.accepted) == places
    assert commits(transport) == [(0, 3), (1, 3), (2, 0)]


def test_reporter_sends_what_was_compared() -> None:
    """The partial on its way is the one that compare gives, with ids and names."""
    transport = FakeTransport()
    with reporter(transport) as open_:
        open_.compare("s", A, B, A + 1, token_ids=torch.arange(6).view(2, 3), sample_ids="xy")
    partials = transport.accepted[-1]["partials"]
    worst = {"position": [0, 0], "a": 0.0, "b": 1.0, "ulp": 0x3F800000, "token_id": 0}
    assert {name: column[0] for name, column in partials.items()} == {
        "series": "s", "iteration": 0, "microbatch": 0, "valid": 6, "count": 6, "nonfinite": 0,
        "max": 1.0, "sum": 6.0, "sum_sq": 6.0, "ulp_max": 0x3F800000, "total": 6,
        "worst": worst | {"sample": "x"},
    }  # fmt: skip


def test_reporter_adopts_a_given_iteration_and_microbatch() -> None:
    """A trainer that numbers by itself is followed, and counting goes on from there."""
    transport = FakeTransport()
    with reporter(transport, iteration=7) as open_:
        open_.partial("s", CLEAN)
        open_.partial("s", CLEAN, iteration=12, microbatch=4)
        open_.partial("s", CLEAN)
        open_.end_iteration()
        assert open_.iteration == 13
        open_.end_iteration(microbatches=3)
    assert microbatches(transport.accepted) == [(7, 0), (12, 4), (12, 5)]
    assert commits(transport) == [(12, 6), (13, 3)]


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (0.25, 0.25),
        (3, 3.0),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), 0.5),
        (torch.tensor([7]), 7.0),
    ],
)
def test_reporter_sends_scalars_of_any_number(value: Any, sent: float | str) -> None:
    """Python numbers and tensors of one element arrive as doubles, non-finite ones as words."""
    transport = FakeTransport()
    with reporter(transport) as open_:
        open_.scalar("k", value, weight=512, rule=Rule.MEAN)
        open_.scalar("k", value, global_=True, microbatch=9)
    scalars = transport.accepted[-1]["scalars"]
    assert scalars == {
        "key": ["k", "k"], "iteration": [0, 0], "microbatch": [0, 9], "value": [sent, sent],
        "weight": [512, 1], "rule": ["mean", None], "global": [False, True],
    }  # fmt: skip


def test_reporter_scalars_do_not_count_as_microbatches_of_a_commit() -> None:
    """A number logged more often than there are microbatches leaves the commit alone."""
    transport = FakeTransport()
    with reporter(transport) as open_:
        open_.partial("s", CLEAN)
        for _ in range(5):
            open_.scalar("k", 1.0)
        open_.end_iteration()
    assert commits(transport) == [(0, 1)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda r: r.compare("", A, B), "series '' must have 1 to 200"),
        (lambda r: r.compare("s", A, B[:1]), r"b \(1, 3\) and a \(2, 3\)"),
        (lambda r: r.partial("s\n", CLEAN), "control characters"),
        (lambda r: r.partial(3, CLEAN), "must be a string"),
        (lambda r: r.partial("s", rf.Partial(1, 2, 0.5, 0.5)), "count 2 is over valid 1"),
        (lambda r: r.partial("s", CLEAN, iteration=-1), "iteration must be an integer from 0"),
        (lambda r: r.partial("s", CLEAN, microbatch=2**31), "microbatch must be an integer"),
        (lambda r: r.partial("s", CLEAN, microbatch=True), "not True"),
        (lambda r: r.scalar("k", "1.0x"), "value must be a number"),
        (lambda r: r.scalar("k", "1.0"), "value must be a number, not '1.0'"),
        (lambda r: r.scalar("k", torch.zeros(1, device="meta")), "one real number"),
        (lambda r: r.partial("s", {"valid": 1}), "must be a Partial, not dict"),
        (lambda r: r.scalar("k", None), "value must be a number"),
        (lambda r: r.scalar("k", 10**400), "value must be a number"),
        (lambda r: r.scalar("k", A), r"one real number, not \(2, 3\)"),
        (lambda r: r.scalar("k", torch.tensor(1j)), "one real number"),
        (lambda r: r.scalar("k", 1.0, weight=-1), "weight must be an integer"),
        (lambda r: r.scalar("k", 1.0, weight=0.5), "weight must be an integer"),
        (lambda r: r.scalar("k", 1.0, rule="median"), "rule must be one of last, max, mean"),
        (lambda r: r.scalar("k", 1.0, rule=["mean"]), "rule must be one of last, max, mean"),
        (lambda r: (r.partial("s", CLEAN, microbatch=4), r.end_iteration(2)), "had 5 micro"),
        (lambda r: r.folded(0, keys=[]), "keys must name at least one, or be None for all"),
        (lambda r: r.wait_gate(0, series=()), "series must name at least one"),
    ],
)
def test_reporter_refuses_what_can_never_be_reported(
    call: Callable[[rf.Reporter], Any], words: str
) -> None:
    """Arguments that the aggregator would refuse are a ValueError at the call."""
    with reporter(FakeTransport()) as open_, pytest.raises(ValueError, match=words):
        call(open_)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"run": "a/b"}, "run 'a/b' must not contain '/'"),
        ({"run": ".."}, "run"),
        ({"run": "r", "project": ""}, "project ''"),
        ({"run": "r", "rank": 4, "world_size": 4}, "rank 4 is not below world_size 4"),
        ({"run": "r", "url": "aggregator"}, "url must begin with http"),
        ({"run": "r", "meta": {"x": "y\n"}}, "meta 'x'"),
        ({"run": "r", "meta": {"": "y"}}, "meta's name"),
        ({"run": "r", "meta": {str(n): "y" for n in range(65)}}, "at most 64"),
        ({"run": "r", "meta": ["x"]}, "meta must be strings by name"),
        ({"run": "r", "url": 5}, "url must be a string, not int"),
        ({"run": "r", "token": b"x"}, "token must be a string, not bytes"),
        ({"run": "r", "shard": (0, 1)}, "shard must be a Shard, not tuple"),
        ({"run": "r", "max_queue": 0}, "max_queue must be an integer from 1, not 0"),
        ({"run": "r", "max_queue": math.inf}, "max_queue must be an integer from 1"),
        ({"run": "r", "max_queue_bytes": math.nan}, "max_queue_bytes must be an integer from 1"),
    ],
)
def test_reporter_refuses_to_start_as_nobody(given: dict[str, Any], words: str) -> None:
    """A name, an address or an identity that cannot be right is a ValueError at the start."""
    with pytest.raises(ValueError, match=words):
        rf.Reporter(**given)


@pytest.mark.parametrize(
    ("rank", "finish", "finished"), [(0, None, 1), (1, None, 0), (1, True, 1), (0, False, 0)]
)
def test_reporter_close_finishes_as_rank_0_unless_told(
    rank: int, finish: bool | None, finished: int
) -> None:
    """One rank says that the attempt is over, or whoever is told to."""
    transport = FakeTransport()
    assert reporter(transport, rank=rank, world_size=2).close(finish=finish) == 0
    assert len(transport.finished) == finished


def test_reporter_leaves_a_run_unfinished_after_an_exception() -> None:
    """What the body raised passes through, what it reported arrives, and the run is not over."""
    transport = FakeTransport()

    def train() -> None:
        with reporter(transport) as open_:
            open_.partial("s", CLEAN)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert microbatches(transport.accepted) == [(0, 0)]
    assert transport.finished == []


def test_reporter_finish_comes_after_what_was_reported() -> None:
    """A finish in the middle is sent once the reports before it are accepted."""
    transport = FakeTransport()
    open_ = reporter(transport, rank=1, world_size=2)
    open_.partial("s", CLEAN)
    open_.finish()
    assert open_.close() == 0
    assert transport.finished == [("default", "r", 0)]
    assert microbatches(transport.accepted) == [(0, 0)]


def test_reporter_close_says_what_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """Closing in time though nothing answers: the number of items left, also when asked again."""
    transport = FakeTransport(judge=lambda _: Unreachable("nobody there"))
    open_ = reporter(transport)
    open_.partial("s", CLEAN)
    open_.end_iteration()
    assert open_.flush(timeout=0.01) == 3
    assert open_.close(timeout=0.01) == 3
    assert open_.close() == open_.flush() == 3
    assert transport.finished == []
    assert "rank 0 of run r: closed with 3 items undelivered" in caplog.text


def test_reporter_close_counts_what_was_given_up() -> None:
    """What was refused is not delivered: the run is not marked finished."""
    transport = FakeTransport([None, Unauthenticated("no token")])
    open_ = reporter(transport)
    assert open_.flush() == 0
    open_.partial("s", CLEAN)
    assert open_.close() == 1
    assert open_.dropped == 1
    assert transport.accepted[-1]["dropped"] == 1
    assert transport.finished == []


@pytest.mark.parametrize("timeout", [math.nan, -1.0, -math.inf, None, "1", True, 1 + 1j, 10**400])
def test_reporter_refuses_a_time_that_never_comes(timeout: Any) -> None:
    """A wait against NaN would never end; nothing is closed by a call that is refused."""
    open_, words = reporter(FakeTransport()), "timeout must be a number of seconds"
    open_.end_iteration()
    for call in (open_.flush, open_.close, open_.warm_up, rf.warm_up):
        with pytest.raises(ValueError, match=words):
            call(timeout)
    for read in (open_.folded, open_.wait_gate):
        with pytest.raises(ValueError, match=words):
            read(0, timeout)
    with pytest.raises(ValueError, match=words):
        rf.Reporter("r", timeout=timeout)
    open_.end_iteration()
    assert open_.flush() == 0
    assert open_.close(math.inf) == 0


def test_reporter_refuses_to_wait_no_time_for_an_answer() -> None:
    """Otherwise no report would ever be delivered."""
    with pytest.raises(ValueError, match="timeout must be above 0"):
        rf.Reporter("r", timeout=0)


def test_reporter_refuses_to_report_once_closed() -> None:
    """After close every report is a RuntimeError that says which reporter it is."""
    open_ = reporter(FakeTransport())
    open_.close()
    calls: list[Callable[[], object]] = [
        lambda: open_.compare("s", A, B),
        lambda: open_.partial("s", CLEAN),
        lambda: open_.scalar("k", 1.0),
        open_.end_iteration,
        open_.finish,
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="the reporter of rank 0 of run r is closed"):
            call()


def test_reporter_drops_the_newest_when_nothing_gets_through() -> None:
    """Memory is bounded: what finds no room is counted, and the aggregator is told."""
    down = True
    transport = FakeTransport(judge=lambda _: Unreachable("down") if down else None)
    open_ = reporter(transport, max_queue=3)
    for _ in range(10):
        open_.partial("s", CLEAN)
    assert open_.dropped == 8
    down = False
    assert open_.close() == 8
    assert microbatches(transport.accepted) == [(0, 0), (0, 1)]
    assert transport.accepted[-1]["dropped"] == 8


def test_package_exports_exactly_its_interface() -> None:
    """The names that callers may rely on."""
    assert rf.__all__ == [
        *("Partial", "RankfoldError", "Reporter", "Shard", "Worst"),
        *("compare", "warm_up"),
    ]
    assert all(hasattr(rf, name) for name in rf.__all__)
