"""An aggregator, a proxy before it and reporters before that; and the reckoning at the end."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from . import worker
from .aggregator import Service
from .books import Books
from .expected import differences
from .plan import Plan, Step
from .proxy import Proxy
from .worker import HANDED, LEFT, SAFE, UNKNOWN, Task

SETTLING = 90.0


@dataclass(slots=True)
class Life:
    """One process of a reporter and how far it came."""

    task: Task
    process: BaseProcess
    progress: Any

    @property
    def steps(self) -> list[Step]:
        """What it has handed over for certain, in order."""
        task = self.task
        whole = (
            step
            for iteration in range(task.first, task.plan.iterations)
            for step in task.plan.steps(task.attempt, task.rank, iteration)
        )
        return list(islice(whole, self.progress[HANDED]))

    @property
    def resume(self) -> int:
        """The iteration to replay after a kill: without a durable queue, whatever may be lost."""
        if self.task.spool is None:
            return int(self.progress[SAFE]) + 1
        return max((step.iteration for step in self.steps), default=self.task.first)


class Stage:
    """Everything that takes part, from the start to the reckoning.

    Args:
        plan: what the reporters say.
        folder: of files.
        server: where they say it in the end.
        spool: whether reporters queue durably, where the client can.
    """

    def __init__(self, plan: Plan, folder: Path, server: Service, *, spool: bool) -> None:
        self.plan, self.server = plan, server
        self.proxy = Proxy(server.port, plan.seed, server.refusals)
        self.spool = folder / "spool" if spool and worker.HAS_SPOOL else None
        self.lives: list[Life] = []
        self.current: dict[int, Life] = {}
        self.attempt = 0
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(["rankfold_client", worker.__name__])
        self._allowed = self._processes.Array("q", [-1], lock=False)
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        self._exits.callback(self.server.close)
        self.server.start()
        self._exits.enter_context(self.proxy)
        self._exits.callback(self._kill_all)
        for rank in range(self.plan.world_size):
            self.start_reporter(rank, 0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exits.close()

    def _kill_all(self) -> None:
        for rank in self.current:
            self.kill_reporter(rank)

    # -- reporters -------------------------------------------------------------------------

    def start_reporter(self, rank: int, first: int) -> None:
        """Start a rank's next process at an iteration."""
        spool = None if self.spool is None else str(self.spool / str(rank))
        task = Task(self.plan, self.attempt, rank, first, self.proxy.url, spool)
        progress = self._processes.Array("q", [0, first - 1, UNKNOWN], lock=False)
        process = self._processes.Process(
            target=worker.work, args=(task, self._allowed, progress), daemon=True
        )
        process.start()
        self.current[rank] = Life(task, process, progress)
        self.lives.append(self.current[rank])

    def kill_reporter(self, rank: int) -> None:
        """Kill a rank's process."""
        process = self.current[rank].process
        if process.exitcode is None:
            process.kill()
        process.join(10)

    def restart_reporter(self, rank: int) -> None:
        """Kill a rank and start it again in the same attempt."""
        self.kill_reporter(rank)
        self.start_reporter(rank, self.current[rank].resume)

    def restart_job(self, back: int) -> None:
        """Kill every rank and launch the run anew, some iterations before where it was."""
        self._kill_all()
        self.attempt += 1
        resume = min(life.resume for life in self.current.values())
        for rank in range(self.plan.world_size):
            self.start_reporter(rank, max(0, resume - back))

    def allow(self, iteration: int) -> None:
        """Let the reporters go on up to an iteration."""
        self._allowed[0] = min(iteration, self.plan.iterations - 1)

    # -- the reckoning ---------------------------------------------------------------------

    def settle(self) -> None:
        """Let everything come to its end, then hold every answer against the oracle, twice."""
        self.proxy.calm = True
        self.allow(self.plan.iterations)
        for rank, life in self.current.items():
            life.process.join(SETTLING)
            assert life.process.exitcode == 0, f"rank {rank} ended with {life.process.exitcode}"
            assert life.progress[LEFT] == 0, f"rank {rank} left {life.progress[LEFT]} items"
        self._check_delivery()
        self._deliver_rest()
        assert not self.proxy.traffic.faults, self.proxy.traffic.faults
        self.check_answers()
        self.server.end(signal.SIGKILL)
        self.server.start()
        self.check_answers()
        assert not self.server.complaints, "\n".join(self.server.complaints[:20])

    def _deliver_rest(self) -> None:
        """Bring what killed reporters had under way to its end, so that the end is one."""
        deadline = time.monotonic() + SETTLING
        for message in self.proxy.traffic.messages:
            while not message.acknowledged:
                assert time.monotonic() < deadline, "a late copy is not taken"
                self.proxy.deliver(message)

    def _check_delivery(self) -> None:
        """Whatever had to be delivered was, as it was handed over; and nothing else travelled."""
        messages = self.proxy.traffic.messages
        arrived = {step for m in messages for step in m.steps}
        lost = set(self._owed()) - {step for m in messages if m.acknowledged for step in m.steps}
        assert not lost, f"{len(lost)} were never delivered, such as {next(iter(lost))}"
        planned = {
            step
            for life in self.lives
            for iteration in range(life.task.first, self.plan.iterations)
            for step in self.plan.steps(life.task.attempt, life.task.rank, iteration)
        }
        invented = arrived - planned
        assert not invented, f"nobody handed over {next(iter(invented))}"

    def _owed(self) -> Iterator[Step]:
        """Yield what must have arrived: with a durable queue, all; else what survived a kill."""
        for life in self.lives:
            over = life.progress[LEFT] == 0
            for step in life.steps:
                if self.spool or over or step.iteration <= life.progress[SAFE]:
                    yield step

    def books(self) -> Books:
        """Return the oracle's books of what has arrived."""
        books = Books(self.plan.world_size)
        for message in self.proxy.traffic.messages:
            if message.who is not None:
                books.apply(message.who, message.steps)
        return books

    def check_answers(self) -> None:
        """Hold every answer of each aggregator against the oracle's."""
        books = self.books()
        for reader in self.server.readers:
            found = differences(books, reader, finished=True)
            assert not found, "\n".join([f"{len(found)} answers are wrong", *found[:20]])
