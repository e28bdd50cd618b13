"""Heavy load: many ranks, each over a connection of its own, that send until they are answered."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import MutableSequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

RUN = "load"
SERIES = "training/rollout_logprobs"
BATCH = 100
# Reports of a rank that differ in more than the iteration.
KINDS = 4
PAUSE = 0.05
REFUSALS = frozenset({429, 502, 503, 504})

Columns = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Crowd:
    """Ranks that report one iteration after the other, as fast as they are answered.

    Attributes:
        seed: of what they report.
        size: how many they are.
    """

    seed: int
    size: int

    def report(self, rank: int, iteration: int) -> bytes:
        """Return a report: a whole iteration of a rank."""
        head, tail = _body(self, rank, iteration % KINDS).split("[]")
        commit = f'"commits":[{{"iteration":{iteration},"microbatches":{BATCH}}}]'
        return f"{head}{[iteration] * BATCH}{tail[:-1]},{commit}}}".encode()

    def totals(self, iterations: MutableSequence[int]) -> dict[str, Any]:
        """Return what all reports add up to: of each rank those of so many iterations."""
        counts, valids, tops, sums = 0, 0, [], Fraction(0)
        for rank, done in enumerate(iterations):
            for kind in range(KINDS):
                times = len(range(kind, done, KINDS))
                columns = _columns(self, rank, kind)
                counts += times * sum(columns["count"])
                valids += times * sum(columns["valid"])
                sums += times * sum(map(Fraction, columns["sum"]))
                tops += columns["max"] if times else []
        return {"count": counts, "valid": valids, "max": max(tops), "sum": float(sums)}


@cache
def _columns(crowd: Crowd, rank: int, kind: int) -> Columns:
    rng = random.Random(f"{crowd.seed}/{rank}/{kind}")
    counts = [rng.choice((0, rng.randint(1, 4096))) for _ in range(BATCH)]
    tops = [rng.uniform(1e-9, 9) if count else 0.0 for count in counts]
    sums = [
        top * rng.uniform(1, count) if count else 0.0
        for top, count in zip(tops, counts, strict=True)
    ]
    return {"count": counts, "valid": [4096] * BATCH, "max": tops, "sum": sums}


@cache
def _body(crowd: Crowd, rank: int, kind: int) -> str:
    """Return a report without its iteration and its commit."""
    columns = {
        "iteration": [],
        "series": [SERIES] * BATCH,
        "microbatch": [*range(BATCH)],
        **_columns(crowd, rank, kind),
    }
    report = {"run": RUN, "rank": rank, "world_size": crowd.size, "partials": columns}
    return json.dumps(report)


def work(
    crowd: Crowd,
    port: int,
    going: MutableSequence[int],
    done: MutableSequence[int],
    told: MutableSequence[float],
) -> None:
    """Report until it is over, then until every report is answered; fail over a wrong answer.

    Args:
        crowd: who reports.
        port: where to.
        going: its first item is 0 when it is over.
        done: is told how many reports of each rank were answered with 200.
        told: is told when the last of them was.
    """
    faults: list[str] = []
    lanes = [
        threading.Thread(target=_report_on, args=(crowd, rank, port, going, done, told, faults))
        for rank in range(crowd.size)
    ]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    assert not faults, faults[:10]


def _report_on(
    crowd: Crowd,
    rank: int,
    port: int,
    going: MutableSequence[int],
    done: MutableSequence[int],
    told: MutableSequence[float],
    faults: list[str],
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    while going[0] and not faults:
        body = crowd.report(rank, done[rank])
        tried = 1
        while (receipt := _answer(connection, body, faults)) is None and not faults:
            tried += 1
            time.sleep(PAUSE)
        wanted = ({"accepted": BATCH}, {"duplicates": BATCH})[: min(tried, 2)]
        if receipt not in wanted:
            faults.append(f"rank {rank}, try {tried}: {receipt}")
        told[rank] = time.monotonic()
        done[rank] += 1
    connection.close()


def _answer(
    connection: http.client.HTTPConnection, body: bytes, faults: list[str]
) -> dict[str, int] | None:
    """Return what was said of a report, but for zeros; None where it is to be sent again."""
    try:
        connection.request("POST", "/api/v1/partials", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return None
    if answer.status == 200:
        return {name: number for name, number in json.loads(text).items() if number}
    if answer.status not in REFUSALS:
        faults.append(f"status {answer.status}: {text.decode()}")
    return None
