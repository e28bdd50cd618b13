"""Injects faults at points that a seed chooses, while reporters report."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .aggregator import Aggregator
from .plan import Plan
from .proxy import Point
from .stage import Stage

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
    """

    strikes: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    statuses: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0
    durable: bool = False
    slowest_start: float = 0.0


class Conductor:
    """Runs one scenario.

    Args:
        seed: of everything.
        strikes: how many faults to inject, those of connections not counted.
        folder: of files.
    """

    def __init__(self, seed: int, strikes: int, folder: Path) -> None:
        self._rng = random.Random(f"{seed}/conductor")
        self._strikes = strikes
        plan = Plan(seed, iterations=(strikes + 2) * ITERATIONS_PER_STRIKE)
        self._server = Aggregator(folder, *FLAGS[seed % len(FLAGS)])
        self._stage = Stage(plan, folder, self._server, spool=seed % 2 == 0)
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Inject every fault, let the dust settle and hold all answers against the oracle."""
        started = time.monotonic()
        faults: list[tuple[Callable[[], None], int]] = [
            (self.kill_server, 2),
            (self.kill_server_while_it_writes, 4),
            (self.kill_server_before_it_answers, 3),
            (self.kill_server_once_it_answered, 3),
            (self.kill_server_while_it_starts, 2),
            (self.kill_reporter, 3),
            (self.kill_reporter_and_server, 2),
            (self.kill_job, 2),
            (self.stop_server, 1),
            (self.pause_server, 1),
            (self.start_second_server, 1),
            (self.deliver_again, 2),
        ]
        names, weights = zip(*faults, strict=True)
        with self._stage:
            for number, strike in enumerate(self._rng.choices(names, weights, k=self._strikes)):
                self._stage.allow((number + 1) * ITERATIONS_PER_STRIKE)
                self._outcome.strikes[strike.__name__] += 1
                time.sleep(self._rng.uniform(0, 0.1))
                strike()
            self._outcome.kills["aggregator"] += 1
            self._stage.settle()
        self._outcome.broken = self._stage.proxy.faults
        self._outcome.statuses = self._stage.proxy.traffic.statuses
        self._outcome.slowest_start = self._server.slowest_start
        self._outcome.durable = self._stage.spool is not None
        self._outcome.seconds = time.monotonic() - started
        return self._outcome

    # -- faults ----------------------------------------------------------------------------

    def kill_server(self) -> None:
        """Kill the aggregator at any moment and start it again after another."""
        self._end_server(signal.SIGKILL)
        time.sleep(self._rng.uniform(0, 0.3))
        self._server.start()

    def kill_server_while_it_writes(self) -> None:
        """Kill the aggregator within milliseconds after a report was sent to it."""
        self._ambush("sent", self._rng.uniform(0, 0.004))

    def kill_server_before_it_answers(self) -> None:
        """Kill the aggregator between the commit and the answer."""
        self._ambush("answered", 0.0)

    def kill_server_once_it_answered(self) -> None:
        """Kill the aggregator when a reporter has just been told that its report is durable."""
        self._ambush("passed on", self._rng.uniform(0, 0.002))

    def _ambush(self, point: Point, delay: float) -> None:
        struck = threading.Event()

        def strike() -> None:
            self._server.strike()
            struck.set()

        self._stage.proxy.ambush(point, delay, strike)
        # A rank that waits for others sends nothing; then any moment is as good.
        struck.wait(3.0)
        self._stage.proxy.spare()
        self._end_server(signal.SIGKILL)
        self._server.start()

    def kill_server_while_it_starts(self) -> None:
        """Kill the aggregator, and again while it comes up."""
        self._end_server(signal.SIGKILL)
        self._server.launch()
        time.sleep(self._rng.uniform(0, 1.5) * self._server.slowest_start)
        self._end_server(signal.SIGKILL)
        self._server.start()

    def kill_reporter(self) -> None:
        """Kill a reporter and start it again in the same attempt."""
        self._outcome.kills["reporter"] += 1
        self._stage.restart_reporter(self._rng.randrange(self._stage.plan.world_size))

    def kill_reporter_and_server(self) -> None:
        """Kill both at once."""
        rank = self._rng.randrange(self._stage.plan.world_size)
        self._outcome.kills["reporter"] += 1
        self._stage.kill_reporter(rank)
        self._end_server(signal.SIGKILL)
        self._stage.restart_reporter(rank)
        self._server.start()

    def kill_job(self) -> None:
        """Kill every reporter and start all in a new attempt, from an earlier iteration."""
        self._outcome.kills["reporter"] += self._stage.plan.world_size
        self._stage.restart_job(back=self._rng.randint(0, 3))

    def stop_server(self) -> None:
        """Ask the aggregator to end under load: it ends as a success."""
        code = self._end_server(signal.SIGTERM)
        assert code == 0, (
            f"the aggregator ended with {code}: {self._server.log.read_text()[-3000:]}"
        )
        self._server.start()

    def pause_server(self) -> None:
        """Stop the aggregator's clock for a while, as a disk does that does not answer."""
        self._server.strike(signal.SIGSTOP)
        time.sleep(self._rng.uniform(0.2, 1.5))
        self._server.strike(signal.SIGCONT)

    def start_second_server(self) -> None:
        """Start another aggregator on the same file: it is refused."""
        code = self._server.start_second()
        assert code == 2, f"a second aggregator on one file ended with {code}"

    def deliver_again(self) -> None:
        """Deliver some requests again, however old they are."""
        messages = self._stage.proxy.traffic.messages
        for message in self._rng.sample(messages, min(20, len(messages))):
            self._stage.proxy.deliver(message)

    def _end_server(self, how: signal.Signals) -> int:
        if how is signal.SIGKILL:
            self._outcome.kills["aggregator"] += 1
        return self._server.end(how)
