"""Several aggregators on one PostgreSQL, behind HAProxy: what they take of one run together."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench import load
from tests.bench.ingest_bench import RUN, check_totals
from tests.bench.load import Target
from tests.bench.processes import cpu_seconds
from tests.bench.workload import PER_ITERATION, RANKS, Shape, build
from tests.support.haproxy import HaProxy
from tests.support.postgres import Postgres
from tests.support.server import Server

from rankfold.rules import RuleSet
from rankfold.wire import Commit, Report
from rankfold_service.http.decode import decode_report
from rankfold_service.store import Arrival
from rankfold_service.store.postgres.opening import open_store

SHAPES = (Shape(1, "columns", 8_000), Shape(100, "columns", 4_000), Shape(1000, "columns", 640))
REPLICAS = (1, 2, 4)
# Of the reports that fill a store: after so many iterations they begin again, further on.
ITERATIONS = 64 * 1000 // PER_ITERATION


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    parser.add_argument("--batch", type=int, help="only reports of so many partials")
    parser.add_argument("--replicas", type=int, help="only so many aggregators")
    parser.add_argument(
        "--history", type=int, help="in place of all that: reads with so many partials in the store"
    )


def run(
    *,
    quick: bool = False,
    batch: int | None = None,
    replicas: int | None = None,
    history: int | None = None,
) -> list[dict[str, Any]]:
    """Return a row for each number of aggregators and shape of report."""
    del quick  # each is measured once anyway
    if history is not None:
        return [_reads(history)]
    chosen = [shape for shape in SHAPES if batch in (None, shape.batch)]
    counts = [count for count in REPLICAS if replicas in (None, count)]
    with load.generator() as generator:
        return [_row(generator, shape, count) for shape in chosen for count in counts]


def _reads(partials: int) -> dict[str, Any]:
    """Fill a store and see how long reads take, as the first and as a later one."""
    shape = Shape(1000, "columns", 64 * 64)
    rules = RuleSet()
    bodies = [request.partition(b"\r\n\r\n")[2] for request in build(shape, RUN).requests]
    with Postgres(shared_buffers="256MB", max_wal_size="4GB") as postgres:
        url = postgres.url(postgres.create_database())
        with closing(open_store(url, rules)) as store:
            sent = 0
            started = time.perf_counter()
            for turn in count():
                for at in range(0, len(bodies), RANKS):
                    reports = [decode_report(b, rules) for b in bodies[at : at + RANKS]]
                    store.ingest([Arrival(_moved(r, turn), 1.0) for r in reports])
                    sent += RANKS * shape.batch
                    if sent >= partials:
                        break
                if sent >= partials:
                    break
            filling = time.perf_counter() - started
        with Server(url) as server:
            first, *later = [_timed(server) for _ in range(50)]
        database = url.rpartition("/")[2]
        pages = postgres.execute("SELECT count(*) FROM page", database=database)
        # What stays; the room of what comes and goes is used again.
        tree = "pg_partition_tree('page')"
        kept = f"SELECT sum(pg_total_relation_size(relid))::bigint FROM {tree}"  # noqa: S608 - ours
        size = postgres.execute(kept, database=database)
    return {
        "partials": sent,
        "filled, partials/s": round(sent / filling),
        "first totals ms": round(1e3 * first, 1),
        "later totals ms": round(1e3 * median(later), 1),
        "pages": pages[0][0],
        "kept bytes/partial": round(size[0][0] / sent, 1),
    }


def _moved(report: Report, turn: int) -> Report:
    """Return a report of later iterations."""
    by = turn * ITERATIONS
    report.partials.iteration = [i + by for i in report.partials.iteration]
    report.commits = [Commit(c.iteration + by, c.microbatches) for c in report.commits]
    return report


def _timed(server: Server) -> float:
    started = time.perf_counter()
    server.get(RUN, "totals")
    return time.perf_counter() - started


@contextmanager
def aggregators(count: int) -> Iterator[tuple[Postgres, HaProxy, list[Server]]]:
    """Run so many aggregators on one new database, behind a load balancer."""
    with ExitStack() as stack:
        # As a database is configured that has some memory; what is durable stays as it is.
        postgres = stack.enter_context(Postgres(shared_buffers="256MB", max_wal_size="4GB"))
        url = postgres.url(postgres.create_database())
        servers = [stack.enter_context(Server(url)) for _ in range(count)]
        balancer = stack.enter_context(HaProxy(*(server.port for server in servers)))
        yield postgres, balancer, servers


def _row(generator: ProcessPoolExecutor, shape: Shape, count: int) -> dict[str, Any]:
    expected = generator.submit(load.expected, shape, RUN).result()
    with aggregators(count) as (postgres, balancer, servers):
        groups = {
            "aggregators": [_pid(server.process) for server in servers],
            "database": _with_children(_pid(postgres.process)),
            "balancer": _with_children(_pid(balancer.process)),
        }
        before = {name: _seconds(pids) for name, pids in groups.items()}
        target = Target(balancer.port, _pid(servers[0].process))
        most = generator.submit(load.by_rank, target, shape, RUN).result()
        # Sessions that began meanwhile are the database's too.
        groups["database"] = _with_children(_pid(postgres.process))
        used = {name: _seconds(pids) - before[name] for name, pids in groups.items()}
        for server in servers:
            check_totals(server, expected)
        assert "deadlock" not in postgres.log
        (size,) = postgres.execute("SELECT sum(pg_database_size(oid)) FROM pg_database")
        return {
            "aggregators": count,
            "batch": shape.batch,
            "requests/s": round(most.rate),
            "partials/s": round(shape.batch * most.rate),
            "p50 ms": round(1e3 * most.quantile(0.5), 1),
            "p99 ms": round(1e3 * most.quantile(0.99), 1),
            **{f"{name} us/request": round(1e6 * s / shape.requests) for name, s in used.items()},
            "load us/request": round(1e6 * most.load_cpu / shape.requests),
            "bytes/partial": round(int(size[0]) / shape.partials, 1),
        }


def _pid(process: Any) -> int:
    assert process is not None
    return int(process.pid)


def _with_children(pid: int) -> list[int]:
    """Return a process and those that it started."""
    found = [pid]
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def _seconds(pids: Sequence[int]) -> float:
    """Return the processor time that processes have used so far; those that ended are left out."""
    return sum(cpu_seconds(pid) for pid in pids if os.path.exists(f"/proc/{pid}"))
