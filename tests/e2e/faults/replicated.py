"""The faults of several aggregators on one PostgreSQL."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from . import databases
from .aggregator import Aggregator
from .conductor import FLAGS, Conductor
from .proxy import Point
from .replicas import Replicas, Way


class Replicated(Conductor):
    """Runs one scenario with aggregators that share a database.

    Args:
        seed: of everything, also of how they reach it.
        strikes: how many faults to inject, those of connections not counted.
        folder: of files.
    """

    def __init__(self, seed: int, strikes: int, folder: Path) -> None:
        ways = get_args(Way)
        way = ways[seed // 2 % len(ways)]  # each with both kinds of queues
        self._server = Replicas(folder, *FLAGS[seed % len(FLAGS)], way=way)
        super().__init__(seed, strikes, folder, self._server)

    def faults(self) -> list[tuple[Callable[[], None], int]]:
        """See `Conductor.faults`."""
        failover = [(self.fail_over, 12)] if self._server.standby else []
        return [
            *failover,
            (self.kill_replica, 3),
            (self.kill_replica_while_it_writes, 3),
            (self.kill_replicas_before_they_answer, 3),
            (self.kill_replicas_once_they_answered, 3),
            (self.stop_replica, 1),
            (self.pause_replica, 1),
            (self.stop_database, 2),
            (self.crash_database, 3),
            (self.kill_database, 2),
            (self.end_sessions, 3),
            (self.lock_tables, 1),
            (self.pause_sessions, 1),
            (self.silence_sessions, 1),
            (self.refuse_connections, 1),
            (self.kill_reporter, 2),
            (self.kill_job, 2),
            (self.deliver_again, 1),
            (self.deliver_to_all_at_once, 2),
        ]

    # -- aggregators -----------------------------------------------------------------------

    def kill_replica(self) -> None:
        """Kill one aggregator at any moment and start it again after another."""
        self._kill([self._any()])
        time.sleep(self._rng.uniform(0, 0.5))
        self._server.revive()

    def kill_replica_while_it_writes(self) -> None:
        """Kill one within milliseconds after a report was sent to it, or to another."""
        self._ambush_replicas("sent", self._rng.uniform(0, 0.004), [self._any()])

    def kill_replicas_before_they_answer(self) -> None:
        """Kill all between a commit and its answer."""
        self._ambush_replicas("answered", 0.0, self._server.each)

    def kill_replicas_once_they_answered(self) -> None:
        """Kill all when a reporter has just been told that its report is durable."""
        self._ambush_replicas("passed on", self._rng.uniform(0, 0.002), self._server.each)

    def stop_replica(self) -> None:
        """Ask one to end under load: it ends as a success."""
        one = self._any()
        code = one.end(signal.SIGTERM)
        assert code == 0, f"an aggregator ended with {code}: {one.log.read_text()[-3000:]}"
        self._server.revive()

    def pause_replica(self) -> None:
        """Stop one's clock for a while, perhaps within a transaction."""
        one = self._any()
        one.strike(signal.SIGSTOP)
        time.sleep(self._rng.uniform(0.2, 1.5))
        one.strike(signal.SIGCONT)

    def deliver_to_all_at_once(self) -> None:
        """Deliver some requests again, each to all aggregators at the same moment."""
        ports = [one.port for one in self._server.each]
        for message in self._some():
            self._stage.proxy.deliver(message, *ports)

    def _any(self) -> Aggregator:
        return self._rng.choice(self._server.each)

    def _kill(self, chosen: list[Aggregator]) -> None:
        for one in chosen:
            self._outcome.kills["aggregator"] += 1
            one.end(signal.SIGKILL)

    def _ambush_replicas(self, point: Point, delay: float, chosen: list[Aggregator]) -> None:
        def strike() -> None:
            for one in chosen:
                one.strike()

        self._ambush(point, delay, strike)
        self._kill(chosen)
        self._server.revive()

    # -- the database ----------------------------------------------------------------------

    def stop_database(self) -> None:
        """Restart PostgreSQL, which ends its sessions first."""
        self._take_away("fast")

    def crash_database(self) -> None:
        """Restart PostgreSQL as after a crash: it recovers from its log."""
        self._take_away("immediate")

    def kill_database(self) -> None:
        """Kill PostgreSQL's first process."""
        self._take_away("kill")

    def fail_over(self) -> None:
        """Lose PostgreSQL for good; its standby takes over."""
        self._outcome.kills["database for good"] += 1
        self._server.promote()
        self._resumed()
        self._server.follow()

    def _take_away(self, how: databases.Ending) -> None:
        self._outcome.kills["database"] += 1
        with databases.away(self._server.postgres, how):
            time.sleep(self._rng.uniform(0, 1.0))
        self._resumed()

    def _resumed(self) -> None:
        self._outcome.resumes["a report was taken"].append(self._server.resumed())

    def end_sessions(self) -> None:
        """End the aggregators' sessions again and again, in the middle of what they do."""
        until = time.monotonic() + self._rng.uniform(0.1, 1.0)
        while time.monotonic() < until:
            self._outcome.kills["session"] += databases.terminate(self._server.postgres)
            time.sleep(self._rng.uniform(0, 0.1))

    def lock_tables(self) -> None:
        """Let every statement wait."""
        with databases.locked(self._server.postgres):
            time.sleep(self._rng.uniform(0.2, 2.0))

    def pause_sessions(self) -> None:
        """Stop the aggregators' sessions for a while."""
        with databases.paused(self._server.postgres):
            time.sleep(self._rng.uniform(0.2, 2.0))

    def silence_sessions(self) -> None:
        """Stop the aggregators' sessions for good: they are given up, and others take over."""
        with databases.silenced(self._server.postgres):
            self._server.resumed()

    def refuse_connections(self) -> None:
        """Grant no connection for a while."""
        with databases.crowded(self._server.postgres):
            time.sleep(self._rng.uniform(0.2, 2.0))
