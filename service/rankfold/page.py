"""What is known of one iteration of one attempt, and the decision about what arrives for it.

The decision is exactly-once: an identity that is new is accepted, one that is known with the
same content is a duplicate, one that is known with other content is a conflict and changes
nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from rankfold.fold import Fold, ScalarFold, Table
from rankfold.microbatches import Microbatches
from rankfold.partial import PartialContent
from rankfold.rules import Rule

# The rank of what is already reduced over ranks; no shard has it.
GLOBAL = -1

SUM_TOLERANCE = 1e-9

Kind = Literal["partial", "scalar", "commit"]

# What tells a duplicate from a conflict: microbatch, value, weight, rule.
ScalarContent = tuple[int, float, int, Rule]

F = TypeVar("F", Fold, ScalarFold)
_EMPTY = Fold()
_microbatch = itemgetter(0)


class Conflict(NamedTuple):
    """What was claimed twice with other content, within one iteration of one attempt."""

    kind: Kind
    name: str
    rank: int
    microbatch: int


class Cell(Generic[F]):
    """One rank's partials of one series, or scalars of one key, in one iteration.

    Attributes:
        known: the microbatches that were reported.
        contents: what was reported of them, ascending; what was folded away is left out. The list
            only ever grows at its end: whoever has it and its length has what it was.
        fold: of all of them.
    """

    __slots__ = ("contents", "fold", "known")

    def __init__(self, fold: F) -> None:
        self.known = Microbatches()
        self.contents: list[Any] = []
        self.fold: F = fold

    def content_of(self, microbatch: int) -> Any | None:
        """Return what was reported of a known microbatch, or None where it was folded away."""
        at = bisect_left(self.contents, microbatch, key=_microbatch)
        if at < len(self.contents) and self.contents[at][0] == microbatch:
            return self.contents[at]
        return None


SeriesCell = Cell[Fold]
ScalarCell = Cell[ScalarFold]


def same_partial(known: PartialContent, arriving: PartialContent) -> bool:
    """Whether two contents of one identity agree; sums up to a relative 1e-9."""
    return known == arriving or (
        known[:5] == arriving[:5] and math.isclose(known[5], arriving[5], rel_tol=SUM_TOLERANCE)
    )


def same_scalar(known: ScalarContent, arriving: ScalarContent) -> bool:
    """Whether two contents of one identity agree; NaN agrees with NaN."""
    a, b = known[1], arriving[1]
    return known[2:] == arriving[2:] and (a == b or (math.isnan(a) and math.isnan(b)))


class Sorted(NamedTuple):
    """A group of arrivals after the decision; the lists hold indices into the group."""

    accepted: Sequence[int]
    duplicates: Sequence[int]
    conflicts: Sequence[int]


def decide(
    cell: Cell[Any],
    contents: Sequence[Any],
    same: Callable[[Any, Any], bool],
    limit: int | None,
) -> Sorted:
    """Enter what is new into a cell and sort all arrivals by what they are.

    Args:
        cell: of the arrivals' identity but for the microbatch; the accepted ones are added.
        contents: of the arrivals, in order; each begins with its microbatch.
        same: whether two contents of one identity agree; asked only of contents that are kept.
        limit: how many microbatches the rank has committed, or None before its commit.
    """
    if cell.known.go_on([*map(_microbatch, contents)], limit):
        cell.contents += contents
        return Sorted(range(len(contents)), (), ())
    accepted: list[int] = []
    duplicates: list[int] = []
    conflicts: list[int] = []
    for index, content in enumerate(contents):
        microbatch = content[0]
        if limit is not None and microbatch >= limit:
            conflicts.append(index)
        elif microbatch not in cell.known:
            cell.known.add(microbatch)
            cell.contents = _inserted(cell.contents, content)
            accepted.append(index)
        elif (first := cell.content_of(microbatch)) is None or same(first, content):
            duplicates.append(index)
        else:
            conflicts.append(index)
    return Sorted(accepted, duplicates, conflicts)


def _inserted(contents: list[Any], content: Any) -> list[Any]:
    """Return contents with one more in its place, in a list of their own unless that is the end."""
    if contents and contents[-1][0] > content[0]:
        contents = [*contents]
    insort(contents, content, key=_microbatch)
    return contents


class Page:
    """One iteration of one attempt: commits, contents, folds and conflicts.

    Attributes:
        commits: by rank, how many microbatches it said that the iteration had.
        series: by series and rank, what was reported.
        scalars: by key and rank, likewise; `GLOBAL` stands for no rank.
        conflicts: each thing in conflict, once however often it was sent.
        table: the folds over all ranks.
    """

    __slots__ = ("_done", "_idle", "commits", "conflicts", "scalars", "series", "table")

    def __init__(self) -> None:
        self.commits: dict[int, int] = {}
        self.series: dict[str, dict[int, SeriesCell]] = {}
        self.scalars: dict[str, dict[int, ScalarCell]] = {}
        self.conflicts: set[Conflict] = set()
        self.table = Table()
        # Per series, the ranks that reported all that they committed; and the ranks that
        # committed no microbatch. Counting them here keeps completeness independent of ranks.
        self._done: dict[str, int] = {}
        self._idle = 0

    def enter_partials(self, rank: int, series: str, contents: Sequence[PartialContent]) -> Sorted:
        """Decide about partials of one series and rank and keep the contents of the new ones."""
        limit = self.commits.get(rank)
        ranks = self.series.get(series)
        cell = (ranks.get(rank) if ranks else None) or Cell(_EMPTY)
        sorted_ = decide(cell, contents, same_partial, limit)
        if sorted_.accepted:
            if ranks is None:
                ranks = self.series[series] = {}
            ranks[rank] = cell
            if len(cell.known) == limit:
                self._done[series] = self._done.get(series, 0) + 1
        return sorted_

    def fold_partials(self, rank: int, series: str, fold: Fold) -> None:
        """Fold accepted partials of one series and rank."""
        cell = self.series[series][rank]
        cell.fold = cell.fold.merge(fold.bare)
        self.table.add_series(series, fold)

    def enter_scalars(self, rank: int, key: str, contents: Sequence[ScalarContent]) -> Sorted:
        """Decide about scalars of one key and rank and keep the contents of the new ones."""
        cell = self.scalars.get(key, {}).get(rank) or Cell(ScalarFold())
        sorted_ = decide(cell, contents, same_scalar, None)
        if sorted_.accepted:
            self.scalars.setdefault(key, {})[rank] = cell
        return sorted_

    def fold_scalars(self, rank: int, key: str, fold: ScalarFold) -> None:
        """Fold accepted scalars of one key and rank."""
        cell = self.scalars[key][rank]
        cell.fold = cell.fold.merge(fold)
        self.table.add_scalar(key, fold)

    def commit(self, rank: int, microbatches: int) -> bool:
        """Take a rank's commit; False where it contradicts what is known, and changes nothing."""
        known = self.commits.get(rank)
        if known is not None:
            return known == microbatches
        cells = [(name, ranks[rank]) for name, ranks in self.series.items() if rank in ranks]
        if any(cell.known.highest >= microbatches for _, cell in cells):
            return False
        self.commits[rank] = microbatches
        if microbatches == 0:
            self._idle += 1
        for name, cell in cells:
            if len(cell.known) == microbatches:
                self._done[name] = self._done.get(name, 0) + 1
        return True

    def recount(self) -> None:
        """Make what is derived anew from commits and cells, after they were set from outside.

        The worst tokens stay: only the table has them.
        """
        self._idle = sum(n == 0 for n in self.commits.values())
        self._done = {
            series: sum(len(cell.known) == self.commits.get(r) for r, cell in ranks.items())
            for series, ranks in self.series.items()
        }
        before, self.table = self.table, Table()
        for _, series, fold in self.cells():
            self.table.add_series(series, fold)
        for series, fold in before.series.items():
            self.table.series[series] = self.table.series[series]._replace(worst=fold.worst)
        for _, key, scalar in self.scalar_cells():
            self.table.add_scalar(key, scalar)

    def absorb(self, other: Page) -> None:
        """Add the page of other ranks for the same iteration; they go on to share their cells."""
        self.commits.update(other.commits)
        for series, cells in other.series.items():
            self.series.setdefault(series, {}).update(cells)
        for key, values in other.scalars.items():
            self.scalars.setdefault(key, {}).update(values)
        self.conflicts |= other.conflicts
        self.table.add(other.table)
        for series, done in other._done.items():
            self._done[series] = self._done.get(series, 0) + done
        self._idle += other._idle

    def speakers(self) -> set[int]:
        """Return the ranks of which anything is known here, `GLOBAL` among them."""
        return self.ranks() | self.commits.keys() | {c.rank for c in self.conflicts}

    def of_rank(self, rank: int) -> Page:
        """Return what is known of one rank alone, as a page that shares its cells."""
        page = Page()
        page.commits = {r: count for r, count in self.commits.items() if r == rank}
        page.series = {s: {rank: cells[rank]} for s, cells in self.series.items() if rank in cells}
        page.scalars = {
            k: {rank: cells[rank]} for k, cells in self.scalars.items() if rank in cells
        }
        page.conflicts = {conflict for conflict in self.conflicts if conflict.rank == rank}
        for series in page.series:
            tokens = self.table.series[series].worst
            mine = tuple(token for token in tokens if token.place.rank == rank)
            page.table.series[series] = Fold(worst=mine)
        page.recount()
        return page

    def fold_away(self) -> list[list[Any]]:
        """Let go of contents that a fold of several holds, and return them.

        The content of a cell with a single microbatch is its fold, so it stays and still tells
        a conflict from a duplicate.
        """
        gone = []
        for kind in (self.series, self.scalars):
            for ranks in kind.values():
                for cell in ranks.values():
                    if cell.contents and len(cell.known) > 1:
                        gone.append(cell.contents)
                        cell.contents = []
        return gone

    def __len__(self) -> int:
        """Return how many cells and contents it has, by which its size in memory goes."""
        kinds: tuple[dict[str, dict[int, Cell[Any]]], ...] = (self.series, self.scalars)
        cells = (cell for kind in kinds for ranks in kind.values() for cell in ranks.values())
        return sum(1 + len(cell.contents) for cell in cells)

    @property
    def counts_for_coverage(self) -> bool:
        """Whether a partial or a commit says that this iteration happened."""
        return bool(self.commits or self.series)

    @property
    def worked(self) -> bool:
        """Whether a rank committed at least one microbatch."""
        return len(self.commits) > self._idle

    def committed_by_all(self, expected: int) -> bool:
        """Whether each of so many ranks has committed."""
        return len(self.commits) == expected

    def complete_for(self, series: str, expected: int) -> bool:
        """Whether each of so many ranks has committed, and reported all that it committed."""
        done = self._done.get(series, 0) + self._idle
        return self.committed_by_all(expected) and done == expected

    def complete(self, expected: int) -> bool:
        """Whether the iteration is complete for every series that any rank reported in it."""
        return self.committed_by_all(expected) and all(
            self.complete_for(series, expected) for series in self.series
        )

    def missing_microbatches(self, series: str, rank: int, most: int) -> list[int]:
        """Return the first of what a rank committed of a series but has not reported."""
        cell = self.series.get(series, {}).get(rank)
        reported = cell.known if cell else ()
        missing = (m for m in range(self.commits.get(rank, 0)) if m not in reported)
        return list(islice(missing, most))

    def cells(self) -> Iterator[tuple[int, str, Fold]]:
        """Yield (rank, series, fold) of all that was reported of series."""
        for series, ranks in self.series.items():
            for rank, cell in ranks.items():
                yield rank, series, cell.fold

    def scalar_cells(self) -> Iterator[tuple[int, str, ScalarFold]]:
        """Yield (rank, key, fold) of all that was reported of scalars."""
        for key, ranks in self.scalars.items():
            for rank, cell in ranks.items():
                yield rank, key, cell.fold

    def ranks(self) -> set[int]:
        """Return the ranks that reported something, `GLOBAL` among them."""
        return {
            rank
            for kind in (self.series, self.scalars)
            for ranks in kind.values()
            for rank in ranks
        }

    def table_of(self, rank: int) -> Table:
        """Return the folds of one rank."""
        table = Table()
        table.series = {
            name: ranks[rank].fold for name, ranks in self.series.items() if rank in ranks
        }
        table.scalars = {
            key: ranks[rank].fold for key, ranks in self.scalars.items() if rank in ranks
        }
        return table
