"""Trainers that are killed with undelivered reports, and who delivers them, on real processes."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

import rankfold_client as rf
from support.server import Server

SERIES = "s"
NOBODY = "http://127.0.0.1:9"
DEADLINE = 60.0
# `make test-kills` asks for more; torch's workers look only every few seconds for their parent.
KILLS = int(os.environ.get("RANKFOLD_KILLS", "10"))
WITH_LOADER = 10
CLEAN = rf.Partial(valid=1, count=0, max=0.0, sum=0.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield an aggregator that all tests here share."""
    with Server(f"sqlite:///{tmp_path_factory.mktemp('store')}/rankfold.db") as running:
        yield running


def killed(train: Callable[[Callable[[], None]], None], patience: float | None = None) -> int:
    """Run a trainer in a process of its own that ends by SIGKILL.

    Args:
        train: gets a function to call after each report that it handed over; it kills itself
            at its end.
        patience: seconds after the first report at which the process is killed earlier.

    Returns:
        How many reports it had handed over.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            train(lambda: os.write(writing, b".") and None)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(writing)
    first = os.read(reading, 1)
    if patience is not None:
        time.sleep(patience)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    # Not to the end, which does not come while a child of the child lives.
    os.set_blocking(reading, False)
    with os.fdopen(reading, "rb") as pipe:
        return len(first + (pipe.read() or b""))


def report(
    reporter: rf.Reporter, done: Callable[[], None], iterations: int, microbatches: int = 5
) -> None:
    """Report some iterations."""
    for _ in range(iterations):
        for _ in range(microbatches):
            reporter.partial(SERIES, CLEAN)
            done()
        reporter.end_iteration()


def valid(server: Server, run: str, attempts: str = "all") -> int:
    """Return how many positions the aggregator has counted."""
    keys = server.get(run, "totals", attempts=attempts)["keys"]
    count: int = keys[f"{SERIES}_valid_count"]["value"]
    assert server.get(run, "gate")["conflicts"] == 0
    return count


def flush(folder: Path, url: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run `rankfold spool flush`."""
    command = [sys.executable, "-m", "rankfold_service.cli.main", "spool", "flush", str(folder)]
    return subprocess.run(
        [*command, "--url", url, *flags], capture_output=True, text=True, timeout=120, check=False
    )


def test_next_process_delivers_what_a_killed_one_had_not(
    server: Server, run: str, tmp_path: Path
) -> None:
    """Everything that was handed over counts once, for the attempt that it was of."""

    def train(done: Callable[[], None]) -> None:
        report(rf.Reporter(run, url=NOBODY, rank=0, world_size=1, spool=tmp_path), done, 20)

    assert killed(train) == 100
    following = rf.Reporter(
        run, url=server.url, rank=0, world_size=1, attempt=1, iteration=20, spool=tmp_path
    )
    report(following, lambda: None, 2)
    assert following.close(timeout=DEADLINE) == 0
    assert valid(server, run) == 110
    assert valid(server, run, "0") == 100
    assert server.get(run, "gate", require_finished=True)["gate"] == "pass"
    assert list(tmp_path.iterdir()) == []


def test_spool_flush_delivers_what_a_killed_process_had_not(
    server: Server, run: str, tmp_path: Path
) -> None:
    """The command keeps everything while nobody answers, and then delivers it once."""

    def train(done: Callable[[], None]) -> None:
        for rank in (0, 1):
            reporter = rf.Reporter(run, url=NOBODY, rank=rank, world_size=2, spool=tmp_path)
            report(reporter, done, 4)

    assert killed(train) == 40
    unreachable = flush(tmp_path, NOBODY, "--timeout", "0")
    assert unreachable.returncode == 4
    assert "left 50\nwhat is left stays in" in unreachable.stdout
    done = flush(tmp_path, server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("delivered 50, refused 0, left 0\n")
    assert valid(server, run) == 40
    assert server.get(run, "gate")["iterations"]["complete"] == 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["removed", "moved"])
def test_spool_that_vanishes_under_a_trainer_is_made_anew(
    server: Server, run: str, tmp_path: Path, how: str
) -> None:
    """After `rm -rf` or `mv` of the spool a kill loses nothing, what was there before included."""
    folder = tmp_path / "spool"

    def train(done: Callable[[], None]) -> None:
        reporter = rf.Reporter(run, url=NOBODY, rank=0, world_size=1, spool=folder, max_queue=30)
        report(reporter, done, 20)
        if how == "removed":
            shutil.rmtree(folder)
        else:
            folder.rename(tmp_path / "elsewhere")
        report(reporter, done, 20)
        deadline = time.monotonic() + DEADLINE
        while not list(folder.glob("*.spool")) and time.monotonic() < deadline:
            time.sleep(0.01)
        report(reporter, done, 20)

    assert killed(train) == 300
    done = flush(folder, server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("delivered 361, refused 0, left 0\n")
    assert valid(server, run) == 300
    assert server.get(run, "gate")["gate"] == "pass"
    assert list(folder.iterdir()) == []


def test_spool_that_is_cut_off_under_a_trainer_is_written_anew(
    server: Server, run: str, tmp_path: Path
) -> None:
    """After `truncate` of its files a kill loses nothing, what was there before included."""

    def train(done: Callable[[], None]) -> None:
        reporter = rf.Reporter(run, url=NOBODY, rank=0, world_size=1, spool=tmp_path)
        time.sleep(0.1)
        report(reporter, done, 20)
        (path,) = tmp_path.glob("*.spool")
        os.truncate(path, 0)
        report(reporter, done, 20)
        deadline = time.monotonic() + DEADLINE
        while path.read_bytes()[:1] != b"r" and time.monotonic() < deadline:
            time.sleep(0.01)
        report(reporter, done, 20)

    assert killed(train) == 300
    done = flush(tmp_path, server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "refused 0, left 0\n" in done.stdout
    assert valid(server, run) == 300
    assert server.get(run, "gate")["gate"] == "pass"
    assert list(tmp_path.iterdir()) == []


def test_spool_that_vanishes_and_cannot_be_made_anew_holds_nobody_up(
    run: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Training goes on, the log says once what happened, and all is delivered from memory."""
    folder, late = tmp_path / "spool", Server("memory://")
    reporter = rf.Reporter(run, url=late.url, rank=0, world_size=1, spool=folder)
    report(reporter, lambda: None, 1)
    shutil.rmtree(folder)
    folder.touch()
    deadline = time.monotonic() + DEADLINE
    while "removed or moved away" not in caplog.text and time.monotonic() < deadline:
        time.sleep(0.01)
    report(reporter, lambda: None, 3)
    time.sleep(2.5)
    assert caplog.text.count("removed or moved away") == 1
    assert reporter.dropped == 0
    with late:
        assert reporter.close(timeout=DEADLINE) == 0
        assert valid(late, run) == 20
    assert folder.is_file()


def fork_worker(reporter: rf.Reporter) -> None:
    """Leave a child behind that uses what it inherited and ends, as a data loader's does."""
    if os.fork() == 0:
        reporter.partial(SERIES, CLEAN)
        reporter.close()
        os._exit(0)


@pytest.mark.parametrize("seed", range(KILLS))
def test_kill_in_the_middle_of_delivery_loses_and_repeats_nothing(
    server: Server, run: str, tmp_path: Path, seed: int
) -> None:
    """Wherever the kill falls, what was handed over counts once, and every child ends."""
    chance = random.Random(seed)
    # Ends when the last process is gone that has the other end.
    ending, living = os.pipe()

    def train(done: Callable[[], None]) -> None:
        reporter = rf.Reporter(
            *(run,), url=server.url, rank=0, world_size=1, spool=tmp_path, max_queue=30
        )
        loader = iter(DataLoader(range(10_000), num_workers=2 if seed % WITH_LOADER == 0 else 0))
        for _ in range(1000):
            next(loader)
            report(reporter, done, 1, chance.randrange(1, 200))
            if chance.random() < 0.3:
                fork_worker(reporter)
            reporter.flush(chance.random() / 20)

    handed_over = killed(train, chance.random())
    os.close(living)
    assert select.select([ending], [], [], DEADLINE)[0] == [ending], seed
    os.close(ending)
    following = rf.Reporter(run, url=server.url, rank=0, world_size=1, spool=tmp_path)
    assert following.close(timeout=DEADLINE) == 0, seed
    # One more may have been handed over before the word of it was.
    assert handed_over <= valid(server, run) <= handed_over + 1, seed
    assert list(tmp_path.iterdir()) == []


def test_close_without_an_aggregator_keeps_everything_and_the_finish(
    server: Server, run: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that ended while nobody listened passes its gate once it is flushed."""
    reporter = rf.Reporter(run, url=NOBODY, rank=0, world_size=1, spool=tmp_path)
    report(reporter, lambda: None, 2)
    assert reporter.close(timeout=0.1) == 14
    assert f"14 items are kept in {tmp_path} for the next process of this rank" in caplog.text
    assert f"'rankfold spool flush {tmp_path}'" in caplog.text
    assert flush(tmp_path, server.url).returncode == 0
    assert server.get(run, "gate", require_finished=True)["gate"] == "pass"


def test_fork_of_a_trainer_leaves_its_spool_alone(server: Server, run: str, tmp_path: Path) -> None:
    """A child neither writes to the spool nor holds it once the parent is dead."""

    def train(done: Callable[[], None]) -> None:
        reporter = rf.Reporter(run, url=NOBODY, rank=0, world_size=1, spool=tmp_path)
        report(reporter, done, 1)
        if os.fork() == 0:
            os.close(release)
            report(reporter, done, 1)
            assert reporter.close() == 0
            os.write(closed, b"x")
            os.read(held, 1)
            os._exit(0)
        os.read(waiting, 1)

    held, release = os.pipe()
    waiting, closed = os.pipe()
    assert killed(train) == 10
    following = rf.Reporter(run, url=server.url, rank=0, world_size=1, spool=tmp_path)
    assert following.close(timeout=DEADLINE) == 0
    for end in (release, held, waiting, closed):
        os.close(end)
    assert valid(server, run) == 5


def test_spool_flush_needs_no_torch(tmp_path: Path) -> None:
    """The program runs where there is no torch, and what needs it says so."""
    script = (
        "import sys, runpy; sys.modules['torch'] = None\n"
        "import rankfold_client as rf\n"
        "try: rf.Reporter\n"
        "except ModuleNotFoundError as error: print(error)\n"
        f"sys.argv = ['spool', 'flush', {str(tmp_path)!r}]\n"
        "runpy.run_module('rankfold_client.spool', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "rankfold_client.Reporter needs torch: install the extra 'client', as the README says\n"
        f"there is no spool in {tmp_path}, or nothing is left in it\n"
        "delivered 0, refused 0, left 0\n"
    )
