"""Others that take numbers from many processes over HTTP, beside us in the same run.

None of them promises what we do. A Pushgateway keeps the last push of each group, in memory; its
default mode gathers all groups at every push to see that they fit together. VictoriaMetrics
keeps every sample, answers before they are on disk, and stores a repeated one again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
from tests.bench.load import WARM_UP, Load, Outcome, Wanted, measure, receipt
from tests.bench.processes import RESULTS, launched
from tests.bench.workload import RANKS, VALID, Shape, build, differences, posted, warm_up
from tests.support.server import Server, free_port

ROUNDS = 2
GAUGES = ("count", "valid", "max", "sum")
TEXT = "text/plain; version=0.0.4"
OURS = (Shape(1, "columns", 12_000), Shape(100, "columns", 3_000), Shape(100, "rows", 2_000))


@dataclass(frozen=True)
class Peer:
    """A way to run another server and to report to it; one partial is four gauges.

    Attributes:
        name: of the server, which is also its Debian package.
        mode: what is particular.
        flags: for its command line, with `{port}` and `{folder}` to be filled in.
        wanted: what answers a push.
        groups: how many processes report.
        batch: partials in a push.
        requests: how many pushes are measured.
    """

    name: str
    mode: str
    flags: tuple[str, ...]
    wanted: Wanted
    groups: int
    batch: int
    requests: int

    @property
    def ready(self) -> str:
        """What answers once it runs; not the metrics, of which a copy may be kept for a second."""
        return "/health" if self.name == "victoria-metrics" else "/-/ready"

    @property
    def path(self) -> str:
        """Where to push what, with the number of the group to be filled in."""
        metrics = "/api/v1/import/prometheus"
        return metrics if self.name == "victoria-metrics" else "/metrics/job/training/rank/{group}"


_GATEWAY = ("--web.listen-address=127.0.0.1:{port}", "--persistence.file=", "--log.level=error")
_UNCHECKED = (*_GATEWAY, "--push.disable-consistency-check")
_VICTORIA = (
    *("-httpListenAddr=127.0.0.1:{port}", "-storageDataPath={folder}", "-loggerLevel=ERROR"),
    *("-retentionPeriod=100y",),
)
_CHECKED_ANSWER = Wanted(b"\r\n\r\n")
_TAKEN_ANSWER = Wanted(b"\r\n\r\n", b"HTTP/1.1 202 ")
_NO_CONTENT = Wanted(b"\r\n\r\n", b"HTTP/1.1 204 ")


def _gateway(groups: int, batch: int, requests: int, *, checked: bool) -> Peer:
    mode = "default" if checked else "no consistency check"
    flags, wanted = (_GATEWAY, _CHECKED_ANSWER) if checked else (_UNCHECKED, _TAKEN_ANSWER)
    return Peer("prometheus-pushgateway", mode, flags, wanted, groups, batch, requests)


PEERS = (
    _gateway(1, 1, 6_000, checked=True),
    _gateway(64, 1, 2_000, checked=True),
    _gateway(1_024, 1, 256, checked=True),
    _gateway(64, 25, 128, checked=True),
    _gateway(1, 1, 12_000, checked=False),
    _gateway(64, 1, 12_000, checked=False),
    _gateway(1_024, 1, 12_000, checked=False),
    _gateway(64, 25, 2_000, checked=False),
    Peer("victoria-metrics", "default", _VICTORIA, _NO_CONTENT, 64, 1, 12_000),
    Peer("victoria-metrics", "default", _VICTORIA, _NO_CONTENT, 64, 100, 2_000),
)


def run(*, quick: bool = False) -> list[dict[str, Any]]:
    """Return a row for each server, mode and size: medians over rounds, and our ratios to it."""
    found = [peer for peer in PEERS if shutil.which(peer.name)]
    rounds = [
        ([_measure_us(shape) for shape in OURS], [_measure_peer(peer) for peer in found])
        for _ in range(1 if quick else ROUNDS)
    ]
    ours, theirs = (
        [list(taken) for taken in zip(*side, strict=True)] for side in zip(*rounds, strict=True)
    )
    rows = [
        {"server": "rankfold", "mode": f"durable, {shape.form}", "processes": RANKS}
        | _figures(shape.batch, outcomes)
        for shape, outcomes in zip(OURS, ours, strict=True)
    ]
    for peer, outcomes in zip(found, theirs, strict=True):
        figures = _figures(peer.batch, outcomes)
        place = {"server": peer.name, "mode": peer.mode, "processes": peer.groups}
        rows.append(place | figures | _ratios(rows[0], rows[1], figures))
    missing = sorted({peer.name for peer in PEERS} - {peer.name for peer in found})
    return rows + [
        {"server": name, "mode": f"not installed: apt-get install {name}"} for name in missing
    ]


def _figures(batch: int, outcomes: list[Outcome]) -> dict[str, Any]:
    rate = median(o.rate for o in outcomes)
    cpu = median(o.server_cpu / o.requests for o in outcomes) / batch
    return {
        "partials a request": batch,
        "requests/s": round(rate),
        "partials/s": round(rate * batch),
        "p99 ms": round(1e3 * median(o.quantile(0.99) for o in outcomes), 1),
        "cpu us/partial": round(1e6 * cpu, 1),
        "others' share of a core": round(median(o.other_cpu / o.seconds for o in outcomes), 2),
    }


def _ratios(
    ones: dict[str, Any], hundreds: dict[str, Any], theirs: dict[str, Any]
) -> dict[str, float]:
    """Return how often our partials go into the time of one of theirs, and into its cpu."""
    rate, cpu = "partials/s", "cpu us/partial"
    return {
        "rate by 1, times": round(ones[rate] / theirs[rate], 1),
        "rate by 100, times": round(hundreds[rate] / theirs[rate], 1),
        "cpu by 1, times": round(theirs[cpu] / ones[cpu], 1),
        "cpu by 100, times": round(theirs[cpu] / hundreds[cpu], 1),
    }


def _measure_us(shape: Shape) -> Outcome:
    workload = build(shape, "peers")
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(dir=RESULTS.resolve()))
        server = stack.enter_context(Server(f"sqlite:///{folder}/bench.db"))
        load = stack.enter_context(Load(server.port))
        assert server.process is not None
        load.drive(warm_up(WARM_UP), receipt(0))
        return measure(load, server.process.pid, workload.requests, receipt(shape.batch))


def _measure_peer(peer: Peer) -> Outcome:
    """Run a peer, let every group report once, and measure reports of all of them in turn."""
    pushes = list(_pushes(peer))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(dir=RESULTS.resolve())))
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        flags = [flag.format(port=port, folder=folder) for flag in peer.flags]
        pid = stack.enter_context(launched([peer.name, *flags], f"{url}{peer.ready}"))
        load = stack.enter_context(Load(port))
        load.drive(pushes[: peer.groups], peer.wanted)
        outcome = measure(load, pid, pushes[peer.groups :], peer.wanted)
        _check(peer, httpx.get(f"{url}/metrics", timeout=60).text)
        return outcome


def _pushes(peer: Peer) -> Iterator[bytes]:
    """Yield one push of each group, and then as many as are measured."""
    count = peer.groups + peer.requests
    numbers = differences(np.random.default_rng(1), count * peer.batch, VALID)
    for number in range(count):
        here = slice(number * peer.batch, (number + 1) * peer.batch)
        group = number % peer.groups
        content = _exposition(peer, group, {name: numbers[name][here] for name in GAUGES})
        yield posted(peer.path.format(group=group), content, TEXT)


def _exposition(peer: Peer, group: int, columns: dict[str, Sequence[float]]) -> bytes:
    """Return gauges in Prometheus' text format, a partial's by its microbatch."""
    rank = f',rank="{group}"' if peer.name == "victoria-metrics" else ""
    lines = []
    for name, values in columns.items():
        lines.append(f"# TYPE rollout_{name} gauge")
        for microbatch, value in enumerate(values):
            lines.append(f'rollout_{name}{{microbatch="{microbatch}"{rank}}} {value!r}')
    return "\n".join([*lines, ""]).encode()


def _check(peer: Peer, metrics: str) -> None:
    """A figure counts only if what was pushed is there."""
    if peer.name == "victoria-metrics":
        pushed = (peer.groups + peer.requests) * peer.batch * len(GAUGES)
        taken = [line for line in metrics.splitlines() if "rows_inserted_total" in line]
        assert f'vm_rows_inserted_total{{type="prometheus"}} {pushed}' in taken, taken
    else:
        found = [line for line in metrics.splitlines() if line.startswith("rollout_")]
        assert len(found) == peer.groups * peer.batch * len(GAUGES), len(found)
