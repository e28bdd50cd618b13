"""Which runs the tables of a store are behind with, since when, and whose turn it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from rankfold_service.store import Name

# So many times in a round runs are saved, those together whose turn it is: a commit for each would
# cost more than what is in it.
GROUPS = 64
# A round is at least as long as what the last one wrote again, so that of many ranks the newest
# pages are not written again and again between few reports. But what waits is in memory, and
# replayed by a start, so it is at most so many times as long as it has to be.
MOST_TIMES = 4


class _Since(NamedTuple):
    """Where the journal has the first that the tables lack of a run: row, and bytes before it."""

    row: int
    byte: int


class Backlog:
    """The runs of which the journal says more than the tables, longest waiting first.

    They are saved in rounds: those that wait when a round begins have their turns evenly while the
    journal grows by `distance`. So each is saved once in so many bytes, and never all at once,
    however many they are; nothing waits for more than two rounds while saving keeps up.

    Args:
        least: bytes of journal from one save of a run to the next, where saves are small.

    Attributes:
        row: the number of the journal's newest row; no later one is lower.
        end: how many bytes were ever entered.
        distance: bytes of journal in this round.
        group: how many runs are saved together in this round.
    """

    def __init__(self, least: int) -> None:
        self._least = least
        self.clear(0)

    def clear(self, row: int) -> None:
        """Forget everything; the next row of the journal comes after `row`."""
        self.row = row
        self.end = 0
        self._since: dict[Name, _Since] = {}
        # Of what is being saved: a run may be in both, with what came after its save began.
        self._in_save: dict[Name, _Since] = {}
        self.distance = self._least
        self._again = 0
        self._begin_round()

    def enter(self, row: int, size: int, names: Iterable[Name]) -> None:
        """Note a row of the journal, its bytes, and which runs it says anything new of."""
        for name in names:
            self._since.setdefault(name, _Since(row, self.end))
        # A row that is kept for a damaged run may be far below what the tables have of others.
        self.row = max(self.row, row)
        self.end += size
        if not self._turns_left:
            self._begin_round()

    def __contains__(self, name: object) -> bool:
        return name in self._since or name in self._in_save

    def __iter__(self) -> Iterator[Name]:
        return iter(self._since)

    def __len__(self) -> int:
        return len(self._since)

    @property
    def size(self) -> int:
        """How many bytes of journal a start would have to read."""
        waiting = chain(self._in_save.values(), self._since.values())
        return self.end - next((since.byte for since in waiting), self.end)

    @property
    def late(self) -> float:
        """How long ago the next turn began, as a multiple of how long it lasts."""
        return max(0.0, self.end - self._next_turn) / (self._pace * max(1, self.group))

    def due(self) -> int:
        """Return how many runs are to be saved now."""
        late = self.end - self._next_turn
        turns = min(self._turns_left, 1 + int(late / self._pace)) if late >= 0 else 0
        return turns if turns >= min(self._turns_left, self.group) else 0

    def begin(self, name: Name) -> None:
        """Note that a run is saved as it is now: what comes of it from now on waits anew."""
        self._in_save[name] = self._since.pop(name)

    def first_row(self) -> int:
        """Return the first row that is still needed once what was begun is saved."""
        return next((since.row for since in self._since.values()), self.row + 1)

    def settle(self, name: Name, again: int) -> None:
        """Note that the tables have all of a run that it had when its save began.

        Args:
            name: of the run.
            again: how many bytes were written, if the tables had the run before.
        """
        del self._in_save[name]
        self._again += again
        self._turns_left -= 1
        self._next_turn += self._pace
        if self._turns_left <= 0:
            self.distance = min(max(self._least, self._again), MOST_TIMES * self._least)
            self._again = 0
            self._begin_round()

    def _begin_round(self) -> None:
        self._turns_left = len(self._since)
        self.group = -(-self._turns_left // GROUPS)
        self._pace = self.distance / max(1, self._turns_left)
        self._next_turn = self.end + self._pace
