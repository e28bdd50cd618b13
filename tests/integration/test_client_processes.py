"""A live reporter beside everything that a trainer does to its process: forks, workers, signals."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, TensorDataset

import rankfold_client as rf
from support.server import Server
from support.unruly import HOSTILE, Unruly, nonsense

SERIES = "s"
NOBODY = "http://127.0.0.1:9"
SOON = 60.0
CLEAN = rf.Partial(valid=4, count=0, max=0.0, sum=0.0)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Yield an aggregator that all tests here share."""
    with Server("memory://") as running:
        yield running


def child(work: Callable[[], None]) -> int:
    """Do something in a forked process, which ends with 0 where that went well."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it was, the parent must hear of it
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def status(pid: int) -> int:
    """Return how a child ended, which must be soon."""
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline:
        ended, how = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(how)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")


def valid(server: Server, run: str) -> int:
    """Return how many positions the aggregator has counted."""
    count: int = server.get(run, "totals")["keys"][f"{SERIES}_valid_count"]["value"]
    return count


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers_leave_a_reporter_alone(server: Server, run: str, method: str) -> None:
    """Workers start and end beside a reporter that is sending, and nothing is sent twice."""
    reporter = rf.Reporter(run, url=server.url, rank=0, world_size=1)
    data = TensorDataset(torch.arange(8.0).view(8, 1))
    for (batch,) in DataLoader(data, batch_size=2, num_workers=1, multiprocessing_context=method):
        reporter.compare(SERIES, batch, batch)
    reporter.end_iteration()
    assert reporter.close(SOON) == 0
    assert valid(server, run) == 8
    assert server.get(run, "gate", require_finished=True)["conflicts"] == 0


def test_reporter_cannot_be_sent_to_another_process(run: str) -> None:
    """Whoever hands it to a spawned worker is told what to do instead."""
    reporter = rf.Reporter(run, url=NOBODY, rank=0, world_size=1)
    with pytest.raises(TypeError, match="cannot be pickled: make one in each process"):
        pickle.dumps(reporter)
    reporter.close(0.0)


def test_child_may_report_with_a_reporter_of_its_own(server: Server, run: str) -> None:
    """A process that is forked from one that reports makes one, and both deliver."""

    def work() -> None:
        own = rf.Reporter(run, url=server.url, rank=1, world_size=2)
        own.partial(SERIES, CLEAN)
        own.end_iteration()
        assert own.close(SOON) == 0

    parent = rf.Reporter(run, url=server.url, rank=0, world_size=2)
    parent.partial(SERIES, CLEAN)
    assert status(child(work)) == 0
    parent.end_iteration()
    assert parent.close(SOON) == 0
    assert server.get(run, "gate", require_finished=True)["gate"] == "pass"


@pytest.mark.parametrize("seed", range(5))
def test_fork_at_any_moment_hangs_nobody(
    server: Server, run: str, seed: int, tmp_path: Path
) -> None:
    """Wherever the threads are when the process is forked, parent and child come to their end."""
    spool = tmp_path if seed % 2 else ""
    parent = rf.Reporter(run, url=server.url, rank=0, world_size=1, spool=spool)

    def work() -> None:
        parent.partial(SERIES, CLEAN)
        parent.end_iteration()
        assert (parent.flush(), parent.close()) == (0, 0)

    children = []
    for _ in range(10):
        for _ in range(100):
            parent.partial(SERIES, CLEAN)
        children.append(child(work))
    assert [status(pid) for pid in children] == [0] * 10
    parent.end_iteration()
    assert parent.close(SOON) == 0
    assert valid(server, run) == 4000


@pytest.mark.parametrize("url", [NOBODY, None])
def test_signals_do_what_they_do_without_a_reporter(
    server: Server, run: str, url: str | None
) -> None:
    """SIGTERM ends the process, SIGINT is a KeyboardInterrupt, in a flush too."""

    def wait(reporter: rf.Reporter, ready: Callable[[], None]) -> None:
        ready()
        while True:
            reporter.flush(SOON)

    def train(ready: Callable[[], None]) -> None:
        reporter = rf.Reporter(run, url=url or server.url, rank=0, world_size=1)
        reporter.partial(SERIES, CLEAN)
        with pytest.raises(KeyboardInterrupt):
            wait(reporter, ready)
        reporter.close(0.0)
        ready()
        time.sleep(SOON)

    reading, writing = os.pipe()
    pid = child(lambda: train(lambda: os.write(writing, b".") and None))
    os.close(writing)
    for sent in (signal.SIGINT, signal.SIGTERM):
        assert os.read(reading, 1) == b"."
        os.kill(pid, sent)
    assert status(pid) == -signal.SIGTERM
    os.close(reading)


class Preempted(Exception):
    """What a handler ends training with."""


@pytest.mark.parametrize("url", [NOBODY, None])
def test_handler_of_a_signal_may_report_and_close(
    server: Server, run: str, url: str | None, tmp_path: Path
) -> None:
    """Wherever the signal comes, a call interrupted too, nothing hangs and nothing is lost."""
    rounds, reading, writing = 20, *os.pipe()

    def train(launch: int) -> int:
        """Report until a signal comes; return how many reports were handed over."""
        reporter = rf.Reporter(
            *(run,),
            url=url or server.url,
            rank=0,
            world_size=1,
            attempt=launch,
            iteration=1_000_000 * launch,
            spool=tmp_path,
        )

        def handler(*_: object) -> None:
            reporter.partial("last", CLEAN)
            reporter.close(0.01)
            raise Preempted

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.01 + 0.0001 * launch)
        handed_over = 0
        with contextlib.suppress(Preempted):
            while True:
                reporter.partial(SERIES, CLEAN)
                handed_over += 1
        return handed_over

    pid = child(lambda: os.write(writing, b"%d" % sum(map(train, range(rounds)))) and None)
    assert status(pid) == 0
    handed_over = int(os.read(reading, 100))
    os.close(reading)
    os.close(writing)
    following = rf.Reporter(run, url=server.url, rank=0, world_size=1, attempt=99, spool=tmp_path)
    assert following.close(SOON) == 0
    keys = server.get(run, "totals", attempts="all")["keys"]
    assert 0 <= keys[f"{SERIES}_valid_count"]["value"] / 4 - handed_over <= rounds
    assert server.get(run, "gate")["conflicts"] == 0


@pytest.mark.parametrize("spooled", [False, True])
def test_handler_that_closes_and_returns_loses_no_report_silently(
    server: Server, run: str, tmp_path: Path, spooled: bool
) -> None:
    """Wherever the signal comes, each report has arrived, or it raised; nobody waits in vain."""
    rounds, reading, writing = 30, *os.pipe()

    def train(launch: int) -> int:
        """Report until the reporter says that it is closed; return how many reports did not."""
        reporter = rf.Reporter(
            *(run,),
            url=server.url,
            rank=0,
            world_size=1,
            attempt=launch,
            iteration=1_000_000 * launch,
            spool=tmp_path if spooled else "",
        )
        left: list[int] = []
        signal.signal(signal.SIGALRM, lambda *_: left.append(reporter.close(SOON)))
        signal.setitimer(signal.ITIMER_REAL, 0.01 + 0.0001 * launch)
        handed_over = 0
        with contextlib.suppress(RuntimeError):
            while True:
                reporter.partial(SERIES, CLEAN)
                handed_over += 1
        assert left == [0]
        return handed_over

    pid = child(lambda: os.write(writing, b"%d" % sum(map(train, range(rounds)))) and None)
    assert status(pid) == 0
    told = int(os.read(reading, 100))
    os.close(reading)
    os.close(writing)
    keys = server.get(run, "totals", attempts="all")["keys"]
    # What was on disk before its report raised is delivered by the next one.
    assert 0 <= keys[f"{SERIES}_valid_count"]["value"] / 4 - told <= spooled * rounds


def test_close_that_a_signal_ended_does_not_say_that_all_is_delivered(run: str) -> None:
    """Whoever closes again is told what was left."""
    reporter = rf.Reporter(run, url=NOBODY, rank=0, world_size=1)
    reporter.partial(SERIES, CLEAN)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            reporter.close(SOON)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert reporter.close(SOON) == 2


@pytest.mark.parametrize("name", [*HOSTILE, 1, 2, 3])
def test_training_goes_on_whatever_answers(run: str, name: str | int) -> None:
    """No server holds a call up, raises into it, or keeps a reporter from its end."""
    with Unruly(nonsense(name) if isinstance(name, int) else HOSTILE[name]) as server:
        reporter = rf.Reporter(run, url=server.url, rank=0, world_size=1, timeout=0.1, max_queue=50)
        for _ in range(100):
            reporter.partial(SERIES, CLEAN)
        reporter.end_iteration()
        reporter.flush(0.3)
        started = time.monotonic()
        left = reporter.close(0.1)
        assert time.monotonic() - started < 30.0
    assert left >= 100
    assert reporter.dropped >= 52


def mesh_rank(server: Server, run: str, rank: int, folder: Path) -> None:
    """Report as one of four processes of a mesh of two shards with two copies each."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=4
    )
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    shard = rf.Shard.of_mesh(mesh)
    assert shard == rf.Shard(rank // 2, 2, reports=rank % 2 == 0)
    assert rf.Shard.of_sizes(rank, 4, tensor=2) == shard
    # All copies report; of another run only one of each shard; a third has no copies.
    for name, given in (
        (f"{run}-all", {"shard": shard}),
        (f"{run}-one", {"shard": shard, "reports": shard.reports}),
        (f"{run}-group", {}),
    ):
        reporter = rf.Reporter(name, url=server.url, **given)  # type: ignore[arg-type]
        reporter.partial(SERIES, CLEAN)
        reporter.end_iteration()
        assert reporter.flush(SOON) == 0
        assert reporter.wait_gate(0, SOON)["gate"] == "pass"
        assert reporter.close(SOON) == 0
    distributed.barrier()
    disagreeing = rf.Reporter(f"{run}-all", url=server.url, shard=shard, iteration=1)
    disagreeing.partial(SERIES, CLEAN if rank != 3 else rf.Partial(4, 1, 0.5, 0.5))
    assert disagreeing.close(SOON) == 0
    distributed.destroy_process_group()


def test_copies_of_a_shard_share_its_rank(server: Server, run: str, tmp_path: Path) -> None:
    """On a real mesh copies count once, and one that disagrees makes the run invalid."""
    ranks = [child(lambda rank=rank: mesh_rank(server, run, rank, tmp_path)) for rank in range(4)]  # type: ignore[misc]
    assert [status(pid) for pid in ranks] == [0] * 4
    assert [valid(server, f"{run}-{name}") for name in ("one", "group")] == [8, 16]
    assert valid(server, f"{run}-all") == 16
    verdict = server.get(f"{run}-all", "gate")
    assert verdict["conflicts"] == 1
    assert verdict["gate"] in ("fail", "invalid")
    assert server.get(f"{run}-group", "gate")["ranks"]["expected"] == 4
