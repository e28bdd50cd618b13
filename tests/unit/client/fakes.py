"""What stands in for time, for the network and for an accelerator."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rankfold.errors import RankfoldError
from rankfold.partial import Partial
from rankfold.wire import Receipt

CLEAN = Partial(valid=4, count=0, max=0.0, sum=0.0)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class Later:
    """A comparison whose partial, a clean one, is known when a test says so.

    Args:
        error: what is known in its place.
    """

    def __init__(self, error: Exception | None = None) -> None:
        self.known, self.error = False, error

    def ready(self) -> bool:
        """As Pending."""
        return self.known

    def result(self) -> Partial:
        """As Pending."""
        assert self.known, "nothing may wait for it"
        if self.error:
            raise self.error
        return CLEAN


class FakeTransport:
    """An aggregator that answers as it is told and keeps what it was sent.

    Args:
        answers: for each request in turn, an error to raise or None to accept; then all accepted.
        judge: what to answer to a body, instead.
    """

    def __init__(
        self,
        answers: list[Exception | None] | None = None,
        judge: Callable[[dict[str, Any]], RankfoldError | None] | None = None,
    ) -> None:
        self.answers = list(answers or [])
        self.judge = judge
        self.receipt = Receipt()
        self.bodies: list[bytes] = []
        self.accepted: list[dict[str, Any]] = []
        self.finished: list[tuple[str, str, int]] = []
        self.closed = False

    def report(self, body: bytes, number: int) -> Receipt:
        """Take or refuse a report."""
        self.bodies.append(body)
        self._answer(json.loads(body))
        self.accepted.append(json.loads(body))
        return self.receipt

    def finish(self, project: str, run: str, attempt: int) -> None:
        """Take or refuse a finish."""
        self._answer({})
        self.finished.append((project, run, attempt))

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True

    def _answer(self, body: dict[str, Any]) -> None:
        answer = self.answers.pop(0) if self.answers else None
        if answer is None and self.judge is not None:
            answer = self.judge(body)
        if answer is not None:
            raise answer


def microbatches(reports: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return (iteration, microbatch) of each partial in the order of arrival."""
    columns = [report["partials"] for report in reports if "partials" in report]
    return [place for c in columns for place in zip(c["iteration"], c["microbatch"], strict=True)]
