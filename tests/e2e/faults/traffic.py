"""The record of every request that reached the proxy whole: what travelled, what was answered."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .plan import CommitStep, PartialStep, ScalarStep, Step

# Of a partial.
DOUBLES = ("max", "sum", "sum_sq")


@dataclass(slots=True)
class Message:
    """A request as it travelled.

    Attributes:
        raw: its bytes.
        who: (attempt, rank) of a report; None of anything else.
        steps: what it reports.
        acknowledged: whether the aggregator has answered 200 at least once.
    """

    raw: bytes
    who: tuple[int, int] | None = None
    steps: tuple[Step, ...] = ()
    acknowledged: bool = False


@dataclass(slots=True)
class Traffic:
    """All requests in the order in which they came, and what the aggregator answered.

    Attributes:
        refusals: the statuses that say that a request is to be sent again.
        messages: the requests.
        statuses: how often each status was answered.
        faults: answers that no fault explains.
    """

    refusals: frozenset[int]
    messages: list[Message] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def note(self, raw: bytes) -> Message:
        """Remember a request."""
        message = parse(raw)
        self.messages.append(message)
        return message

    def answered(self, message: Message, answer: bytes) -> None:
        """Remember what the aggregator said to a request."""
        head, _, body = answer.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status == 200:
            message.acknowledged = True
            self._check_receipt(message, body)
        elif status not in self.refusals:
            self.faults.append(f"status {status}: {body.decode()}")
        elif b"retry-after:" not in head.lower():
            self.faults.append(f"status {status} without Retry-After")

    def _check_receipt(self, message: Message, body: bytes) -> None:
        """Every partial and scalar of a report is accounted for in its receipt."""
        if message.who is None:
            return
        sent = sum(not isinstance(step, CommitStep) for step in message.steps)
        if sum(json.loads(body).values()) != sent:
            self.faults.append(f"receipt {body.decode()} for {sent} partials and scalars")


def parse(raw: bytes) -> Message:
    """Return what a request says."""
    head, _, body = raw.partition(b"\r\n\r\n")
    if not head.startswith(b"POST /api/v1/partials "):
        return Message(raw)
    if b"content-encoding: gzip" in head.lower():
        body = gzip.decompress(body)
    report = json.loads(body)
    where = (report["attempt"], report["rank"])
    return Message(raw, where, tuple(_steps(report, where)))


def _steps(report: dict[str, Any], where: tuple[int, int]) -> Iterator[Step]:
    for row in _rows(report.get("partials", {})):
        worst = row.pop("worst", None)
        if worst is not None:
            worst = (*worst["position"], *map(_double, (worst["a"], worst["b"])), worst["ulp"])
        row |= {name: _double(row[name]) for name in DOUBLES if name in row}
        yield PartialStep(*where, **row, worst=worst)
    for row in _rows(report.get("scalars", {})):
        row["value"] = _double(row["value"])
        yield ScalarStep(*where, is_global=row.pop("global"), **row)
    for row in _rows(report.get("commits", {})):
        yield CommitStep(*where, **row)


def _double(value: Any) -> Any:
    """Return a double also where JSON has it without a fraction; words and None as they are."""
    return float(value) if isinstance(value, int) else value


def _rows(columns: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))
