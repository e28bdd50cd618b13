"""Which events of a run its follower is told of: from what is read again and again, without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

SHOWN_BEFORE = 10  # iterations, where the follower comes to a run that has some

Item = dict[str, Any]


class Event(NamedTuple):
    """Something to tell.

    Attributes:
        kind: `run` at the first look, `attempt` when the run was begun again, `iteration`, `gate`
            when the live verdict is another one, or `verdict`, the strict one at the end.
        body: the aggregator's answer on it; of an attempt its number, the first iteration that it
            changed, and whether the run was deleted and begun `anew`.
    """

    kind: str
    body: Item


class Launch(NamedTuple):
    """What tells one launch of a run from another."""

    attempt: int
    first_report: float
    first_iteration: int


class Window(NamedTuple):
    """Iterations to read: the first one, and the last one or all there are."""

    first: int
    last: int | None


class Follower:
    """Knows what was told of a run, and what is to be told of what is read now.

    An iteration is told of once it is complete, or no longer in progress; in order, and again once
    it is complete after all, or where a new launch supersedes it.

    Args:
        first: the first iteration to tell of; None for the last few at the first look.
    """

    def __init__(self, first: int | None) -> None:
        self._next = first
        self._known = False
        self._launch: Launch | None = None
        self._gate: str | None = None
        self._incomplete: set[int] = set()

    def run(self, run: Item) -> Iterator[Event]:
        """Yield the run at the first look, and later that it was begun again."""
        launches = [
            Launch(a["attempt"], a["first_report"], a["first_iteration"])
            for a in run["attempts"]
            if a["first_iteration"] is not None
        ]
        if not self._known:
            self._known = True
            yield Event("run", run)
        if launches:
            yield from self._begun(launches)
            self._launch = launches[-1]

    def _begun(self, launches: list[Launch]) -> Iterator[Event]:
        before, latest = self._launch, launches[-1]
        if before is None or latest == before:
            return
        anew = latest.attempt < before.attempt or (
            latest.attempt == before.attempt and latest.first_report != before.first_report
        )
        changed = launches if anew else [a for a in launches if a.attempt > before.attempt]
        begins = min(launch.first_iteration for launch in [*changed, latest])
        if self._next is not None:
            self._next = min(self._next, begins)
        self._incomplete = {iteration for iteration in self._incomplete if iteration < begins}
        body = {"attempt": latest.attempt, "first_iteration": begins, "anew": anew}
        yield Event("attempt", body)

    def window(self, gate: Item) -> Window | None:
        """Return which iterations to read, where a verdict says that there are any to tell of.

        Args:
            gate: the live verdict; of a run that is over, any one.
        """
        iterations = gate["iterations"]
        last = -1 if iterations["last"] is None else iterations["last"]
        if self._next is None:
            self._next = max(0, last + 1 - SHOWN_BEFORE)
        if gate["state"] != "running":
            return Window(self._next, None)
        waiting = iterations["in_progress"]
        until = min(last, waiting[0] - 1) if waiting else last
        return Window(self._next, until) if until >= self._next else None

    def iterations(self, items: Iterable[Item]) -> Iterator[Event]:
        """Yield iterations that were read, ascending, and count them as told of."""
        for item in items:
            self._next = item["iteration"] + 1
            if not item["complete"]:
                self._incomplete.add(item["iteration"])
            yield Event("iteration", item)

    def late_window(self, gate: Item) -> Window | None:
        """Return which iterations to read again, where some are complete that were told of before.

        Args:
            gate: see `window`.
        """
        found = gate["iterations"]
        open_ = {*found["incomplete"], *found["in_progress"]}
        # Of more than are listed the first are: what comes later may be incomplete too.
        listed = len(found["incomplete"]) == found["incomplete_count"]
        late = [
            i for i in self._incomplete - open_ if listed or i < max(found["incomplete"], default=0)
        ]
        return Window(min(late), max(late)) if late else None

    def late(self, items: Iterable[Item]) -> Iterator[Event]:
        """Yield those of the iterations that were read again which are complete after all."""
        for item in items:
            if item["complete"] and item["iteration"] in self._incomplete:
                self._incomplete.discard(item["iteration"])
                yield Event("iteration", item)

    def gate(self, gate: Item) -> Iterator[Event]:
        """Yield the live verdict where it is another one than before."""
        if gate["gate"] != self._gate:
            self._gate = gate["gate"]
            yield Event("gate", gate)
