"""Faults under heavy load: how soon reports are taken again, and that each counts once."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from . import databases, lanes
from .aggregator import Aggregator, wait_until
from .conductor import Outcome
from .replicas import Replicas, Way

LANES = 64
# For how long reports come undisturbed before each fault.
CALM = 0.7
A_REPORT, ALL = "a report was taken", "all connections had one taken"


class Loaded:
    """Runs one scenario with aggregators that share a database and many ranks that report.

    Args:
        seed: of everything, also of how they reach it.
        strikes: how many faults to inject.
        folder: of files.
    """

    def __init__(self, seed: int, strikes: int, folder: Path) -> None:
        self._rng = random.Random(f"{seed}/loaded")
        self._strikes = strikes
        ways = get_args(Way)
        self._server = Replicas(folder, way=ways[seed % len(ways)])
        self._crowd = lanes.Crowd(seed, LANES)
        processes = multiprocessing.get_context("forkserver")
        self._going = processes.Array("q", [1], lock=False)
        self._done = processes.Array("q", LANES, lock=False)
        self._told = processes.Array("d", LANES, lock=False)
        where = (self._crowd, self._server.port, self._going, self._done, self._told)
        self._load = processes.Process(target=lanes.work, args=where, daemon=True)
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Inject faults one after the other, then hold the totals against the oracle's."""
        started = time.monotonic()
        strikes: list[Callable[[], None]] = [self.kill_replica, self.crash_database, self.lose_both]
        if self._server.standby is not None:
            strikes = [*strikes, self.fail_over, self.fail_over]
        try:
            self._server.start()
            self._load.start()
            self._taken_since(time.monotonic())
            for strike in self._rng.choices(strikes, k=self._strikes):
                self._outcome.strikes[strike.__name__] += 1
                time.sleep(CALM)
                strike()
            self._going[0] = 0
            self._load.join(60)
            assert self._load.exitcode == 0, f"the load ended with {self._load.exitcode}"
            self._check()
            self._server.end()
            self._server.start()
            self._check()
            assert not self._server.complaints, "\n".join(self._server.complaints[:20])
        finally:
            self._load.kill()
            self._server.close()
        self._outcome.statuses = {200: sum(self._done)}
        self._outcome.slowest_start = self._server.slowest_start
        self._outcome.seconds = time.monotonic() - started
        return self._outcome

    def _check(self) -> None:
        """Hold the totals of each aggregator against the oracle's."""
        wanted = self._crowd.totals(self._done)
        for reader in self._server.readers:
            keys = reader.ask("GET", f"/api/v1/projects/default/runs/{lanes.RUN}/totals").json
            found = keys["keys"][f"{lanes.SERIES}_diff_mean"]
            assert {name: found[name] for name in wanted} == wanted

    # -- faults ----------------------------------------------------------------------------

    def kill_replica(self) -> None:
        """Kill an aggregator, and start it again."""
        self._kill()
        self._resumed(time.monotonic())
        self._server.revive()

    def crash_database(self) -> None:
        """Restart PostgreSQL as after a crash."""
        self._outcome.kills["database"] += 1
        with databases.away(self._server.postgres, "immediate"):
            time.sleep(self._rng.uniform(0, 1.0))
        self._resumed(time.monotonic())

    def lose_both(self) -> None:
        """Restart PostgreSQL as after a crash, and an aggregator meanwhile."""
        self._outcome.kills["database"] += 1
        with databases.away(self._server.postgres, "immediate"):
            self._kill().launch()
        self._resumed(time.monotonic())
        self._server.revive()

    def fail_over(self) -> None:
        """Lose PostgreSQL for good; its standby takes over."""
        self._outcome.kills["database for good"] += 1
        self._server.promote()
        self._resumed(time.monotonic())
        self._server.follow()

    def _kill(self) -> Aggregator:
        self._outcome.kills["aggregator"] += 1
        one = self._rng.choice(self._server.each)
        one.end()
        return one

    def _resumed(self, since: float) -> None:
        """Note how long after a moment reports are taken again."""
        self._taken_since(since, any)
        self._outcome.resumes[A_REPORT].append(time.monotonic() - since)
        self._taken_since(since)
        self._outcome.resumes[ALL].append(time.monotonic() - since)

    def _taken_since(self, since: float, which: Callable[[list[bool]], bool] = all) -> None:
        """Wait until a report was taken of any rank or of all."""
        what = "reports are taken"
        wait_until(lambda: which([told > since for told in self._told]), what)
