"""The faults of one aggregator on SQLite."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from .aggregator import Aggregator
from .conductor import FLAGS, Conductor
from .proxy import Point


class Single(Conductor):
    """Runs one scenario with one aggregator.

    Args:
        seed: of everything.
        strikes: how many faults to inject, those of connections not counted.
        folder: of files.
    """

    def __init__(self, seed: int, strikes: int, folder: Path) -> None:
        self._server = Aggregator(folder, *FLAGS[seed % len(FLAGS)])
        super().__init__(seed, strikes, folder, self._server)

    def faults(self) -> list[tuple[Callable[[], None], int]]:
        """See `Conductor.faults`."""
        return [
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

    def kill_server(self) -> None:
        """Kill the aggregator at any moment and start it again after another."""
        self._end_server(signal.SIGKILL)
        time.sleep(self._rng.uniform(0, 0.3))
        self._server.start()

    def kill_server_while_it_writes(self) -> None:
        """Kill the aggregator within milliseconds after a report was sent to it."""
        self._ambush_server("sent", self._rng.uniform(0, 0.004))

    def kill_server_before_it_answers(self) -> None:
        """Kill the aggregator between the commit and the answer."""
        self._ambush_server("answered", 0.0)

    def kill_server_once_it_answered(self) -> None:
        """Kill the aggregator when a reporter has just been told that its report is durable."""
        self._ambush_server("passed on", self._rng.uniform(0, 0.002))

    def _ambush_server(self, point: Point, delay: float) -> None:
        self._ambush(point, delay, self._server.strike)
        self._end_server(signal.SIGKILL)
        self._server.start()

    def kill_server_while_it_starts(self) -> None:
        """Kill the aggregator, and again while it comes up."""
        self._end_server(signal.SIGKILL)
        self._server.launch()
        time.sleep(self._rng.uniform(0, 1.5) * self._server.slowest_start)
        self._end_server(signal.SIGKILL)
        self._server.start()

    def kill_reporter_and_server(self) -> None:
        """Kill both at once."""
        rank = self._rng.randrange(self._stage.plan.world_size)
        self._outcome.kills["reporter"] += 1
        self._stage.kill_reporter(rank)
        self._end_server(signal.SIGKILL)
        self._stage.restart_reporter(rank)
        self._server.start()

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

    def _end_server(self, how: signal.Signals) -> int:
        if how is signal.SIGKILL:
            self._outcome.kills["aggregator"] += 1
        return self._server.end(how)
