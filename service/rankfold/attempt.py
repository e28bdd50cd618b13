"""One launch of a run: who reported, its iterations, and its folds kept ready for reading."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from rankfold.fold import Fold, ScalarFold
from rankfold.page import Conflict, Page
from rankfold.scope import Gains, Scope
from rankfold.wire import MAX_META


class Iterations:
    """A set of iteration numbers in ascending order; appending is cheap, counting a range too."""

    __slots__ = ("_sorted",)

    def __init__(self, ascending: Iterable[int] = ()) -> None:
        self._sorted: list[int] = list(ascending)

    def add(self, iteration: int) -> None:
        """Enter an iteration; entering it again changes nothing."""
        if not self._sorted or iteration > self._sorted[-1]:
            self._sorted.append(iteration)
        elif iteration != self._sorted[-1] and iteration not in self:
            insort(self._sorted, iteration)

    def within(self, first: int | None, last: int | None) -> range:
        """Return the positions of the iterations from `first` to `last`, both included."""
        start = 0 if first is None else bisect_left(self._sorted, first)
        stop = len(self._sorted) if last is None else bisect_right(self._sorted, last)
        return range(start, max(start, stop))

    def between(self, first: int | None, last: int | None) -> Iterator[int]:
        """Yield the iterations from `first` to `last`, both included, ascending."""
        return (self._sorted[i] for i in self.within(first, last))

    def at(self, position: int) -> int:
        """Return the iteration at a position in ascending order."""
        return self._sorted[position]

    def descending(self) -> Iterator[int]:
        """Yield all, newest first."""
        return reversed(self._sorted)

    def __contains__(self, iteration: int) -> bool:
        at = bisect_left(self._sorted, iteration)
        return at < len(self._sorted) and self._sorted[at] == iteration

    def __len__(self) -> int:
        return len(self._sorted)

    def __iter__(self) -> Iterator[int]:
        return iter(self._sorted)


@dataclass(slots=True)
class Reporter:
    """A rank as the aggregator sees it; times are seconds since the epoch."""

    last_report: float
    last_iteration: int | None = None
    dropped: int = 0


class Shelf(Protocol):
    """Where the pages of a run are that are not in memory, by attempt and iteration."""

    def load(self, attempt: int, iteration: int) -> Page:
        """Return a page that was put here, or saved from memory."""
        ...

    def put(self, attempt: int, iteration: int, page: Page) -> None:
        """Keep a page that few reports will want again; memory lets go of it."""
        ...


class Attempt:
    """Everything known of one attempt.

    Attributes:
        number: 0 for the first launch of the run.
        world_size: how many ranks it has, or None while nobody said.
        meta: what describes it; the first value of each name stays.
        finished: somebody said that it is over.
        first_report: when the first report arrived, in seconds since the epoch.
        reporters: by rank, when and how far it has reported.
        conflicts: how many things are in conflict.
        first_iteration: the lowest iteration that it reported.
        cut: where later attempts began again: iterations from there on are superseded.
        everything: the folds of all that it reported.
        remaining: the folds of what is not superseded, once anything is.
        paged: the iterations that have a page.
        covered: those of them with a partial or a commit.
        worked: those in which a rank committed a microbatch.
        seen: by series, those of the worked iterations in which a rank reported it.
        incomplete: the covered iterations that are not complete.
        last_commit: the highest iteration that a rank has committed.
        horizon: below it, complete iterations have their contents folded away.
        dirty: pages that changed since they were last saved.
    """

    def __init__(self, number: int, now: float, shelf: Shelf | None = None) -> None:
        self.number = number
        self.world_size: int | None = None
        self.meta: dict[str, str] = {}
        self.finished = False
        self.first_report = now
        self.reporters: dict[int, Reporter] = {}
        self.conflicts = 0
        self.first_iteration: int | None = None
        self.cut: int | None = None
        self.everything = Scope()
        self.remaining: Scope | None = None
        self.paged = Iterations()
        self.covered = Iterations()
        self.worked = Iterations()
        self.seen: dict[str, Iterations] = {}
        self.incomplete: set[int] = set()
        self.last_commit: int | None = None
        self.horizon = 0
        self.dirty: set[int] = set()
        self._pages: dict[int, Page] = {}
        self._shelf = shelf

    @property
    def expected(self) -> int:
        """How many ranks are expected: the world size, or else those that have reported."""
        return len(self.reporters) if self.world_size is None else self.world_size

    @property
    def last_report(self) -> float:
        """When the last report arrived, in seconds since the epoch."""
        return max((r.last_report for r in self.reporters.values()), default=self.first_report)

    @property
    def dropped(self) -> int:
        """How many partials its ranks said that they gave up."""
        return sum(r.dropped for r in self.reporters.values())

    @property
    def wholly_superseded(self) -> bool:
        """Whether later attempts replaced everything that it reported."""
        return self.cut is not None and (
            self.first_iteration is None or self.cut <= self.first_iteration
        )

    @property
    def last_iteration(self) -> int | None:
        """The highest iteration that was reported."""
        return next(self.paged.descending(), None)

    @property
    def last_effective(self) -> int | None:
        """The highest iteration that is not superseded, for ranges that include it."""
        return None if self.cut is None else self.cut - 1

    @property
    def effective(self) -> Scope:
        """The folds of what is not superseded."""
        return self.everything if self.remaining is None else self.remaining

    def page(self, iteration: int) -> Page:
        """Return the page of an iteration that has one, from memory or from where it is kept."""
        page = self._pages.get(iteration)
        if page is None:
            if self._shelf is None:
                raise KeyError(iteration)
            page = self._shelf.load(self.number, iteration)
        return page

    def held(self, iteration: int) -> Page | None:
        """Return the page of an iteration if it is in memory."""
        return self._pages.get(iteration)

    def open_page(self, iteration: int) -> Page:
        """Return the page of an iteration to work on, a new one where there is none."""
        page = self._pages.get(iteration)
        if page is None:
            page = self.page(iteration) if iteration in self.paged else Page()
            self._pages[iteration] = page
            self.paged.add(iteration)
        return page

    def held_cells(self) -> int:
        """Return how many cells the pages in memory have."""
        return sum(map(len, self._pages.values()))

    def old_pages(self, keep: int) -> list[int]:
        """Return what is in memory, changed, and older than the newest `keep`; oldest first."""
        if len(self.paged) <= keep:
            return []
        first_kept = self.paged.at(len(self.paged) - keep)
        return sorted(i for i in self._pages.keys() & self.dirty if i < first_kept)

    def shelve(self, iteration: int) -> None:
        """Put a page in memory on the shelf."""
        if self._shelf is not None:
            self._shelf.put(self.number, iteration, self._pages.pop(iteration))

    def forget_pages(self, keep: int) -> None:
        """Let go of saved pages that are older than the newest `keep`."""
        count = len(self.paged)
        newest = {self.paged.at(i) for i in range(max(0, count - keep), count)}
        for iteration in self._pages.keys() - newest - self.dirty:
            del self._pages[iteration]

    def hear(self, rank: int, now: float, dropped: int, meta: Mapping[str, str]) -> None:
        """Note that a rank has reported."""
        new = rank not in self.reporters
        reporter = self.reporters.setdefault(rank, Reporter(now))
        reporter.last_report = max(reporter.last_report, now)
        reporter.dropped = max(reporter.dropped, dropped)
        for name, value in meta.items():
            if len(self.meta) < MAX_META:
                self.meta.setdefault(name, value)
        if new and self.world_size is None:
            self._expect_more()

    def set_world_size(self, world_size: int) -> None:
        """Take the first word about the number of ranks."""
        self.world_size = world_size
        if world_size > len(self.reporters):
            self._expect_more()

    def _expect_more(self) -> None:
        """Take back every completeness: a rank is expected now that committed nothing yet."""
        self.incomplete = set(self.covered)

    def reach(self, rank: int, lowest: int, highest: int) -> bool:
        """Note which iterations a rank has reported; True where the attempt's first is new."""
        reporter = self.reporters[rank]
        if reporter.last_iteration is None or highest > reporter.last_iteration:
            reporter.last_iteration = highest
        if self.first_iteration is not None and self.first_iteration <= lowest:
            return False
        self.first_iteration = lowest
        return True

    def supersede(self, cut: int) -> None:
        """Leave iterations from `cut` on out of the effective folds."""
        if self.cut is not None and self.cut <= cut:
            return
        self.cut = cut
        self.remaining = scope = Scope()
        for iteration in self.paged.between(None, cut - 1):
            scope.add_page(self.page(iteration))

    def fold_series(self, iteration: int, rank: int, series: str, fold: Fold) -> None:
        """Fold accepted partials into their iteration; `add` folds them into the totals."""
        self.dirty.add(iteration)
        self._pages[iteration].fold_partials(rank, series, fold)
        if series not in self.seen:
            self.seen[series] = Iterations()

    def fold_scalar(self, iteration: int, rank: int, key: str, fold: ScalarFold) -> None:
        """Fold accepted scalars into their iteration; `add` folds them into the totals."""
        self.dirty.add(iteration)
        self._pages[iteration].fold_scalars(rank, key, fold)

    def add(self, rank: int, gains: Gains) -> None:
        """Fold what a report added to iterations into every total that it belongs to.

        Once per report and series, not per iteration: a rank's reports span several.
        """
        self.everything.add(rank, gains.before(None))
        if self.remaining is not None:
            self.remaining.add(rank, gains.before(self.cut))

    def commit(self, iteration: int, rank: int, microbatches: int) -> bool:
        """Take a rank's commit; False where it contradicts what is known, and changes nothing."""
        self.dirty.add(iteration)
        return self.page(iteration).commit(rank, microbatches)

    def note(self, iteration: int, conflict: Conflict) -> bool:
        """Count a conflict; False where it was counted before."""
        conflicts = self.page(iteration).conflicts
        if conflict in conflicts:
            return False
        self.dirty.add(iteration)
        conflicts.add(conflict)
        self.conflicts += 1
        return True

    def judge(self, iteration: int) -> None:
        """Decide anew whether an iteration is covered and complete."""
        page = self.page(iteration)
        if not page.counts_for_coverage:
            return
        self.covered.add(iteration)
        if page.worked:
            self.worked.add(iteration)
            for series in page.series:
                self.seen[series].add(iteration)
        if page.commits and (self.last_commit is None or iteration > self.last_commit):
            self.last_commit = iteration
        if page.complete(self.expected):
            self.incomplete.discard(iteration)
        else:
            self.incomplete.add(iteration)

    def fold_away(self, touched: Iterable[int], keep: int) -> None:
        """Let go of the contents of complete iterations that are older than the newest `keep`.

        Args:
            touched: what has just changed and may have become complete.
            keep: how many of the newest iterations stay as they were reported, at least 1.
        """
        if len(self.paged) <= keep:
            return
        before, self.horizon = self.horizon, self.paged.at(len(self.paged) - keep)
        newly_old = map(self.paged.at, self.paged.within(before, self.horizon - 1))
        for iteration in {*newly_old, *(i for i in touched if i < before)}:
            complete = iteration in self.covered and iteration not in self.incomplete
            if complete:
                self._fold_away(iteration)

    def _fold_away(self, iteration: int) -> None:
        page = self.open_page(iteration)
        if page.fold_away():
            self.dirty.add(iteration)
        if iteration in self.dirty:
            self.shelve(iteration)

    def newest_complete(self) -> int | None:
        """Return the highest complete iteration that is not superseded."""
        for position in reversed(self.covered.within(None, self.last_effective)):
            if (iteration := self.covered.at(position)) not in self.incomplete:
                return iteration
        return None
