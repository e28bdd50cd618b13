"""What a fleet of a given size needs: fitted from small fleets, checked against a large one.

Every number of the model is a cost that was measured here and now, of a real server on a real file:
what a report, a partial, a rank and a series cost. They are put together for fleets of other
sizes, and one of those is simulated: every report of every rank is sent.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tests.bench.fleet import VALID, Fleet, Sent, reports
from tests.bench.load import CONNECTIONS, Load, measure, receipt
from tests.bench.processes import RESULTS, cpu_seconds, resident_bytes
from tests.support.server import Server

from rankfold.ledger import KEPT_ITERATIONS
from rankfold_service.store.shelf import HOT_ITERATIONS

RUN = "fleet"
DAY = 86_400
AT_ONCE = 512
BLOCK = 512  # of what getrusage counts
SIZES = (8, 1_000, 10_000, 100_000)
SCRAPES = 20
SCRAPED = (200, 2_000)
COSTS = {
    "report": ("processor time of a report", "us"),
    "group": ("of each series in a report", "us"),
    "partial": ("of each partial in a report", "us"),
    "empty": ("memory of a server without a run", "MB"),
    "pending": ("of what comes before the tables are brought up to date", "MB"),
    "rank_series": ("of each series of a rank", "bytes"),
    "cell": ("of each of those in an iteration that is held", "bytes"),
    "held_partial": ("of each partial in such an iteration", "bytes"),
    "kept_cell": ("disk of a rank's series in an iteration", "bytes"),
    "kept_partial": ("of each partial while it is kept by microbatch", "bytes"),
    "written_report": ("bytes written for a report, commits shared", "bytes"),
    "written_partial": ("bytes written for each partial", "bytes"),
    "scraped_series": ("processor time of a series in a scrape", "us"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    add = parser.add_argument
    add("--ranks", type=int, default=10_000, help="simulated (default: %(default)s)")
    add("--iterations", type=int, default=3, help="simulated (default: %(default)s)")
    add("--series", type=int, default=3, help="of a rank (default: %(default)s)")
    add("--microbatches", type=int, default=8, help="of an iteration (default: %(default)s)")
    add("--reports", type=int, default=1, help="of a rank and iteration (default: %(default)s)")
    add("--seconds", type=float, default=30, help="of an iteration (default: %(default)s)")
    add("--connections", type=int, default=512, help="kept open (default: %(default)s)")


@dataclass(frozen=True)
class Seen:
    """What a server used: processor time in seconds, memory and disk in bytes.

    Attributes:
        seconds: in which it took what a fleet reported.
        cpu: processor time.
        resident: memory.
        kept: the size of its file in the end.
        written: bytes that it wrote to the disk.
    """

    seconds: float
    cpu: float
    resident: int
    kept: int
    written: int

    def beyond(self, idle: Seen) -> Seen:
        """Return what it used beyond one to which nobody reported."""
        return Seen(
            self.seconds,
            self.cpu - idle.cpu,
            self.resident - idle.resident,
            self.kept - idle.kept,
            self.written - idle.written,
        )


@dataclass(frozen=True)
class Model:
    """Costs as `COSTS` describes them; processor time in seconds, memory and disk in bytes."""

    report: float
    group: float
    partial: float
    empty: float
    pending: float
    rank_series: float
    cell: float
    held_partial: float
    kept_cell: float
    kept_partial: float
    written_report: float
    written_partial: float
    scraped_series: float

    def cpu(self, fleet: Fleet) -> float:
        """Processor time of an iteration."""
        groups = fleet.cells * fleet.reports
        partials = fleet.cells * fleet.microbatches
        reports = fleet.ranks * fleet.reports
        return reports * self.report + groups * self.group + partials * self.partial

    def resident(self, fleet: Fleet) -> float:
        """Memory of a server in which the fleet has reported its iterations."""
        held = _newest(HOT_ITERATIONS, fleet)
        cells = fleet.cells * self.rank_series + held * self.cell
        return self.empty + self.pending + cells + held * fleet.microbatches * self.held_partial

    def kept(self, fleet: Fleet) -> float:
        """Disk that all iterations of the fleet take."""
        recent = _newest(KEPT_ITERATIONS, fleet) * fleet.microbatches
        return fleet.iterations * fleet.cells * self.kept_cell + recent * self.kept_partial

    def written(self, fleet: Fleet) -> float:
        """Bytes written to the disk for an iteration, when many reports share each commit."""
        partials = fleet.cells * fleet.microbatches
        return fleet.ranks * fleet.reports * self.written_report + partials * self.written_partial


def run(
    *,
    quick: bool = False,
    ranks: int = 10_000,
    iterations: int = 3,
    series: int = 3,
    microbatches: int = 8,
    reports: int = 1,
    seconds: float = 30,
    connections: int = 512,
) -> dict[str, list[dict[str, Any]]]:
    """Return the costs, what fleets of several sizes need, and the simulation beside the model."""
    fleet = Fleet(ranks // 10 if quick else ranks, series, microbatches, reports, iterations)
    idle = _seen(replace(fleet, iterations=0), CONNECTIONS)
    model = _model(_small_fleets(fleet, 4 if quick else 1), idle)
    sizes = [
        _size_row(model, replace(fleet, ranks=size, reports=often), seconds)
        for size in SIZES
        for often in sorted({1, microbatches})
    ]
    return {
        "costs": [_cost_row(name, value) for name, value in vars(model).items()],
        f"{series} series, {microbatches} microbatches, iterations of {seconds:g} s": sizes,
        f"{fleet.ranks:,} ranks simulated": _simulation_rows(
            model, fleet, _seen(fleet, connections).beyond(idle)
        ),
    }


def _small_fleets(fleet: Fleet, smaller: int) -> list[Fleet]:
    """Return fleets that differ in everything that the model tells apart."""
    by_microbatch = replace(fleet, ranks=1_000 // smaller, reports=fleet.microbatches, iterations=2)
    at_once = replace(by_microbatch, reports=1)
    return [
        by_microbatch,
        replace(at_once, ranks=500 // smaller, iterations=2 * KEPT_ITERATIONS),
        replace(at_once, series=1, iterations=4),
        replace(at_once, ranks=500 // smaller, microbatches=4 * fleet.microbatches, iterations=4),
        replace(at_once, ranks=4_000 // smaller, series=1, microbatches=1, iterations=1),
        replace(at_once, ranks=4_000 // smaller),
    ]


def _model(fleets: Sequence[Fleet], idle: Seen) -> Model:
    """Measure small fleets and return the costs that explain them best."""
    seen = [_seen(fleet, CONNECTIONS).beyond(idle) for fleet in fleets]
    sent = [[f.requests, f.cells * f.reports * f.iterations, f.partials] for f in fleets]
    hot = [_newest(HOT_ITERATIONS, fleet) for fleet in fleets]
    held = [
        [1, f.cells, cells, cells * f.microbatches] for f, cells in zip(fleets, hot, strict=True)
    ]
    kept = [[f.cells * f.iterations, _newest(KEPT_ITERATIONS, f) * f.microbatches] for f in fleets]
    written = [[requests, partials] for requests, _, partials in sent]
    return Model(
        *fitted(sent, [s.cpu for s in seen]),
        idle.resident,
        *fitted(held, [s.resident for s in seen]),
        *fitted(kept, [s.kept for s in seen]),
        *fitted(written, [s.written for s in seen]),
        _scraped_series(),
    )


def _newest(most: int, fleet: Fleet) -> int:
    """Return how many pairs of a rank and a series there are in the newest iterations."""
    return min(most, fleet.iterations) * fleet.cells


def fitted(amounts: Sequence[Sequence[float]], seen: Sequence[float]) -> list[float]:
    """Return the costs, none negative, by which amounts explain best what was seen.

    Deviations are relative, so that a small measurement says as much as a large one. A cost that
    would be negative is too small to be told from noise, and taken as 0.
    """
    scaled = np.array(amounts) / np.array(seen)[:, None]
    costs = np.zeros(scaled.shape[1])
    used = list(range(scaled.shape[1]))
    while used:
        found = np.linalg.lstsq(scaled[:, used], np.ones(len(seen)))[0]
        if found.min() >= 0:
            costs[used] = found
            break
        used.pop(int(found.argmin()))
    return [float(cost) for cost in costs]


def _seen(fleet: Fleet, connections: int) -> Seen:
    """Let a fleet report all its iterations to a new server, and check what became of it.

    What the server used is counted to its end: it brings its tables up to date then at the latest.
    """
    sent, seconds, before = Sent(), 0.0, resource.getrusage(resource.RUSAGE_CHILDREN)
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(dir=RESULTS.resolve()))
        server = stack.enter_context(Server(f"sqlite:///{folder}/fleet.db"))
        not_ours = cpu_seconds(_pid(server))  # it took to start, which varies
        with Load(server.port, connections, AT_ONCE) as load:
            for iteration in range(fleet.iterations):
                requests = list(reports(fleet, RUN, iteration, sent))
                seconds += measure(load, _pid(server), requests, receipt(fleet.batch)).seconds
        resident = resident_bytes(_pid(server))
        not_ours -= cpu_seconds(_pid(server))
        if fleet.iterations:
            _check(server, fleet, sent)
        not_ours += cpu_seconds(_pid(server))
        server.stop()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime - not_ours
        written = (used.ru_oublock - before.ru_oublock) * BLOCK
        return Seen(seconds, cpu, resident, _size(folder), written)


def _check(server: Server, fleet: Fleet, sent: Sent) -> None:
    """Totals are what was sent, and the verdict turns on the last mismatch."""
    keys = server.get(RUN, "totals")["keys"]
    for place, name in enumerate(fleet.names):
        total = keys[f"{name}_mismatch_count"]
        assert total["value"] == sent.counts[place], total
        assert total["sum"] == sent.sum(place), total
        assert total["valid"] == VALID * fleet.partials // fleet.series, total
    most = max(sent.counts.values())
    path = f"/api/v1/projects/default/runs/{RUN}/finish"
    assert server.client.post(path, json={"attempt": 0}).status_code == 200
    for limit, verdict in ((most, "pass"), (most - 1, "fail")):
        gate = server.get(RUN, "gate", max_mismatch_count=limit, require_finished=True)
        assert gate["gate"] == verdict, gate["reasons"]


def _scraped_series() -> float:
    """Return the processor time that one more series takes in a scrape."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(dir=RESULTS.resolve()))
        flags = ("--scrape-cache", "0")
        server = stack.enter_context(Server(f"sqlite:///{folder}/fleet.db", *flags))
        load = stack.enter_context(Load(server.port, 1))
        fleet, seconds = Fleet(ranks=1, series=100, microbatches=1), []
        for size in SCRAPED:
            for number in range(size // fleet.series):
                request = list(reports(fleet, f"run-{size}-{number}", 0, Sent()))
                load.drive(request, receipt(fleet.batch))
            started = cpu_seconds(_pid(server))
            for _ in range(SCRAPES):
                assert server.client.get("/metrics").status_code == 200
            seconds.append((cpu_seconds(_pid(server)) - started) / SCRAPES)
    return (seconds[1] - seconds[0]) / SCRAPED[1]  # the first are there in both


def _pid(server: Server) -> int:
    assert server.process is not None
    return server.process.pid


def _size(folder: str) -> int:
    return sum(file.stat().st_size for file in Path(folder).iterdir())


def _cost_row(name: str, value: float) -> dict[str, Any]:
    what, unit = COSTS[name]
    scale = {"us": 1e6, "MB": 1e-6, "bytes": 1.0}[unit]
    return {"cost": what, "value": round(value * scale, 1), "unit": unit}


def _size_row(model: Model, fleet: Fleet, seconds: float) -> dict[str, Any]:
    a_day = replace(fleet, iterations=round(DAY / seconds))
    cores = model.cpu(fleet) / seconds
    return {
        "ranks": fleet.ranks,
        "reports of a rank and iteration": fleet.reports,
        "requests/s": round(fleet.ranks * fleet.reports / seconds, 1),
        "partials/s": round(fleet.cells * fleet.microbatches / seconds, 1),
        "cores": round(cores, 3),
        "all ranks at once, s": round(model.cpu(fleet) / fleet.reports, 2),
        "memory MB": round(model.resident(a_day) / 1e6),
        "disk MB/day": round(model.kept(a_day) / 1e6, 1),
        "written GB/day": round(a_day.iterations * model.written(fleet) / 1e9, 2),
    }


def _simulation_rows(model: Model, fleet: Fleet, seen: Seen) -> list[dict[str, Any]]:
    cpu = model.cpu(fleet) * fleet.iterations
    compared = {
        "requests/s of a core": (fleet.requests / cpu, fleet.requests / seen.cpu),
        "partials/s of a core": (fleet.partials / cpu, fleet.partials / seen.cpu),
        "memory MB": (model.resident(fleet) / 1e6, (model.empty + seen.resident) / 1e6),
        "disk MB": (model.kept(fleet) / 1e6, seen.kept / 1e6),
        "written MB": (fleet.iterations * model.written(fleet) / 1e6, seen.written / 1e6),
    }
    rows: list[dict[str, Any]] = [
        {"what": what, "predicted": round(p), "measured": round(m), "ratio": round(m / p, 2)}
        for what, (p, m) in compared.items()
    ]
    return [*rows, {"what": "requests/s", "measured": round(fleet.requests / seen.seconds)}]
