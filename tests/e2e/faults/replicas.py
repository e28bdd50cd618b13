"""Several aggregators on one PostgreSQL behind a balancer: as one, to who reports."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from support import roles
from support.haproxy import HaProxy
from support.pgbouncer import PgBouncer
from support.postgres import Postgres
from support.standby import Standby

from .aggregator import Aggregator, Answer, ask, wait_until

Way = Literal["direct", "pooled", "encrypted", "mirrored"]


class Replicas:
    """Aggregators with the least rights on a database of their own.

    Args:
        folder: where the aggregators' logs are.
        flags: further ones of `rankfold serve`.
        way: how they reach the database: directly, through PgBouncer, by TLS, or wherever it is,
            for a standby has everything that was acknowledged and may take its place.
        number: of aggregators.

    Attributes:
        postgres: who takes writes.
        standby: who follows it, where one does.
        each: the aggregators.
    """

    refusals = frozenset({429, 502, 503, 504})

    def __init__(self, folder: Path, *flags: str, way: Way = "direct", number: int = 2) -> None:
        self._exits = ExitStack()
        self.postgres = Postgres(tls=way == "encrypted")
        self._exits.callback(self.postgres.close)
        self._clusters = [self.postgres]
        self._bouncer: PgBouncer | None = None
        self.standby: Standby | None = None
        store = self._store(way)
        self.each = [
            Aggregator(folder, *flags, store=store, name=f"server-{index}")
            for index in range(number)
        ]
        for one in self.each:
            self._exits.callback(one.close)
        self._balancer = HaProxy(*(one.port for one in self.each))
        self._exits.callback(self._balancer.close)
        self.port = self._balancer.port
        self.slowest_start = 0.0
        self._prepared = False
        self._free: int | None = None

    def _store(self, way: Way) -> str:
        """Return the store's URL, for the role of the aggregators."""
        if way == "pooled":
            passwords = {roles.ROLE: roles.PASSWORDS[roles.ROLE]}
            bouncer = self._bouncer = PgBouncer(self.postgres, **passwords)
            self._exits.callback(bouncer.close)
            return bouncer.url(roles.DATABASE, roles.ROLE)
        if way == "encrypted":
            trusted = str(self.postgres.certificate)
            return roles.url(self.postgres, roles.ROLE, sslmode="verify-full", sslrootcert=trusted)
        url = roles.url(self.postgres, roles.ROLE)
        return self._follow().beside(url) if way == "mirrored" else url

    def _follow(self, port: int | None = None) -> Standby:
        """Let a new standby follow who takes writes."""
        standby = self.standby = Standby(self.postgres, port)
        self._clusters.append(standby)
        self._exits.callback(standby.close)
        return standby

    @property
    def readers(self) -> Sequence[Aggregator]:
        """See `Service.readers`."""
        return self.each

    @property
    def complaints(self) -> list[str]:
        """See `Service.complaints`: what nobody foresaw, and deadlocks."""
        logs = [line for cluster in self._clusters for line in cluster.log.splitlines()]
        deadlocks = [line for line in logs if "deadlock" in line]
        return [line for one in self.each for line in one.complaints] + deadlocks

    def start(self) -> None:
        """See `Service.start`; the first time, everything is made."""
        self.postgres.start()
        if not self._prepared:
            roles.make_roles(self.postgres)
            roles.make_tables(self.postgres)
            if self._bouncer is not None:
                self._bouncer.start()
        if self.standby is not None:
            self.standby.start().be_waited_for()
        self.revive()
        if not self._prepared:
            self._balancer.start()
        self._prepared = True

    def revive(self) -> None:
        """Start the aggregators that do not run, and wait until all are ready."""
        started = time.monotonic()
        for one in self.each:
            if one.ended():
                one.launch()
        for one in self.each:
            one.wait()
        self.slowest_start = max(self.slowest_start, time.monotonic() - started)

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        """See `Service.end`: the aggregators, and the database as in a crash."""
        for one in self.each:
            one.end(how)
        if self.standby is not None:
            self.standby.stop("immediate")
        self.postgres.stop("immediate")

    def promote(self) -> None:
        """Lose who takes writes: the standby takes its place."""
        heir = self.standby
        assert heir is not None
        self.postgres.stop("immediate")
        heir.promote()
        self.postgres, self.standby = heir, None
        self._free = heir.primary.port

    def follow(self) -> None:
        """Let another standby follow, where the one that was lost had been."""
        self._follow(self._free).start().be_waited_for()

    def close(self) -> None:
        """See `Service.close`."""
        self._exits.close()

    def probe(self, run: str = "probe") -> Answer:
        """Report to a run of its own."""
        body = json.dumps({"run": run, "rank": 0}).encode()
        return ask(self.port, "POST", "/api/v1/partials", body)

    def resumed(self) -> float:
        """Wait until a report is taken, and return for how many seconds that was."""
        started = time.monotonic()
        # Each connection of a pooler to a server that is silent is given up after 15 s.
        wait_until(lambda: self.probe().status == 200, "a report is taken", 120.0)
        return time.monotonic() - started
