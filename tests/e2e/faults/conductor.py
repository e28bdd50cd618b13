"""Injects faults at points that a seed chooses, while reporters report."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .aggregator import Service
from .plan import Plan
from .proxy import Point
from .stage import Stage
from .traffic import Message

ITERATIONS_PER_STRIKE = 2
FLAGS = (
    ("--keep-iterations", "1", "--checkpoint-bytes", "2000"),
    ("--keep-iterations", "4", "--checkpoint-bytes", "20000"),
    ("--keep-iterations", "16"),
)


@dataclass(slots=True)
class Outcome:
    """What a scenario went through.

    Attributes:
        strikes: how often each fault was injected.
        kills: how many processes were killed, by what they were.
        broken: how often each fault of the connection was.
        statuses: what the aggregator answered, how often.
        seconds: how long it took.
        durable: whether reporters queued durably.
        slowest_start: the longest that the aggregator took until it was ready.
        resumes: seconds from the end of each fault until something, by what.
    """

    strikes: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    statuses: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0
    durable: bool = False
    slowest_start: float = 0.0
    resumes: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


class Conductor(ABC):
    """Runs one scenario; which faults there are depends on what the reporters report to.

    Args:
        seed: of everything.
        strikes: how many faults to inject, those of connections not counted.
        folder: of files.
        server: what the reporters report to.
    """

    def __init__(self, seed: int, strikes: int, folder: Path, server: Service) -> None:
        self._rng = random.Random(f"{seed}/conductor")
        self._strikes = strikes
        plan = Plan(seed, iterations=(strikes + 2) * ITERATIONS_PER_STRIKE)
        self._stage = Stage(plan, folder, server, spool=seed % 2 == 0)
        self._outcome = Outcome()

    @abstractmethod
    def faults(self) -> list[tuple[Callable[[], None], int]]:
        """Return the faults, and how often each comes beside the others."""

    def run(self) -> Outcome:
        """Inject every fault, let the dust settle and hold all answers against the oracle."""
        started = time.monotonic()
        faults, weights = zip(*self.faults(), strict=True)
        with self._stage:
            for number, strike in enumerate(self._rng.choices(faults, weights, k=self._strikes)):
                self._stage.allow((number + 1) * ITERATIONS_PER_STRIKE)
                self._outcome.strikes[strike.__name__] += 1
                time.sleep(self._rng.uniform(0, 0.1))
                strike()
            self._outcome.kills["aggregator"] += 1
            self._stage.settle()
        self._outcome.broken = self._stage.proxy.faults
        self._outcome.statuses = self._stage.proxy.traffic.statuses
        self._outcome.slowest_start = self._stage.server.slowest_start
        self._outcome.durable = self._stage.spool is not None
        self._outcome.seconds = time.monotonic() - started
        return self._outcome

    def kill_reporter(self) -> None:
        """Kill a reporter and start it again in the same attempt."""
        self._outcome.kills["reporter"] += 1
        self._stage.restart_reporter(self._rng.randrange(self._stage.plan.world_size))

    def kill_job(self) -> None:
        """Kill every reporter and start all in a new attempt, from an earlier iteration."""
        self._outcome.kills["reporter"] += self._stage.plan.world_size
        self._stage.restart_job(back=self._rng.randint(0, 3))

    def deliver_again(self) -> None:
        """Deliver some requests again, however old they are."""
        for message in self._some():
            self._stage.proxy.deliver(message)

    def _some(self) -> list[Message]:
        messages = self._stage.proxy.traffic.messages
        return self._rng.sample(messages, min(20, len(messages)))

    def _ambush(self, point: Point, delay: float, strike: Callable[[], None]) -> None:
        """Strike a delay after the next request has reached a point of its way."""
        struck = threading.Event()

        def strike_once() -> None:
            strike()
            struck.set()

        self._stage.proxy.ambush(point, delay, strike_once)
        # A rank that waits for others sends nothing; then any moment is as good.
        struck.wait(3.0)
        self._stage.proxy.spare()
