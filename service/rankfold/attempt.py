"""One launch of a run: who reported, its iterations, and its folds kept ready for reading."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

from rankfold.facts import Launch
from rankfold.fold import Fold, ScalarFold, Table, largest
from rankfold.iterations import Iterations
from rankfold.page import Conflict, Page
from rankfold.scope import Gains, Scope

# The contents of so many cells are freed by one report: where it completes many iterations, to free
# what all of them had takes several times as long as to take the report.
FREED_AT_ONCE = 64


@dataclass(slots=True)
class Reporter:
    """A rank as the aggregator sees it; times are seconds since the epoch."""

    last_report: float
    last_iteration: int | None = None
    dropped: int = 0


# Read of every rank at every scrape.
_LAST_REPORT, _DROPPED = attrgetter("last_report"), attrgetter("dropped")


class Shelf(Protocol):
    """Where the pages of a run are that are not in memory, by attempt and iteration."""

    def load(self, attempt: int, iteration: int) -> Page:
        """Return a page that was put here, or saved from memory."""
        ...

    def put(self, attempt: int, iteration: int, page: Page) -> None:
        """Keep a page as it is now."""
        ...


class Attempt:
    """Everything known of one attempt.

    Attributes:
        number: 0 for the first launch of the run.
        launch: what is known of it as a whole.
        alone: only the books of one rank are in it, so that no other is expected.
        reporters: by rank, when and how far it has reported.
        conflicts: how many things are in conflict.
        cut: where later attempts began again: iterations from there on are superseded.
        everything: the folds of all that it reported.
        remaining: the folds of what is not superseded, once anything is.
        paged: the iterations that have a page.
        covered: those of them with a partial or a commit.
        worked: those in which a rank committed a microbatch.
        seen: by series, the covered iterations in which a rank reported it.
        incomplete: the covered iterations that are not complete.
        last_commit: the highest iteration that a rank has committed.
        horizon: below it, complete iterations have their contents folded away.
        dirty: pages in memory that changed since they were last saved or put on the shelf.
    """

    def __init__(
        self, number: int, launch: Launch, shelf: Shelf | None = None, *, alone: bool = False
    ) -> None:
        self.number = number
        self.launch = launch
        self.alone = alone
        self.reporters: dict[int, Reporter] = {}
        self.conflicts = 0
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
        self._lately: set[int] = set()
        self._gone: list[list[Any]] = []
        self._read: tuple[int, Table] | None = None
        self._shelf = shelf

    @property
    def expected(self) -> int:
        """How many ranks are expected: the world size, or else those that have reported."""
        if self.alone:
            return 1
        size = self.launch.world_size
        return len(self.reporters) if size is None else size

    @property
    def last_report(self) -> float:
        """When the last report arrived, in seconds since the epoch."""
        times = map(_LAST_REPORT, self.reporters.values())
        return max(times, default=self.launch.first_report)

    @property
    def dropped(self) -> int:
        """How many partials its ranks said that they gave up."""
        return sum(map(_DROPPED, self.reporters.values()))

    @property
    def wholly_superseded(self) -> bool:
        """Whether later attempts replaced everything that it reported."""
        first = self.launch.first_iteration
        return self.cut is not None and (first is None or self.cut <= first)

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

    def table(self, iteration: int) -> Table:
        """Return the folds of an iteration that has a page, to be read only.

        Of the one that was asked for last they stay here, so that every scrape asks for the newest
        complete one at no cost.
        """
        page = self._pages.get(iteration)
        if page is not None:
            return page.table
        if self._read is None or self._read[0] != iteration:
            self._read = iteration, self.page(iteration).table
        return self._read[1]

    def held(self, iteration: int) -> Page | None:
        """Return the page of an iteration if it is in memory."""
        return self._pages.get(iteration)

    def open_page(self, iteration: int) -> Page:
        """Return the page of an iteration to work on, a new one where there is none."""
        page = self._pages.get(iteration)
        if page is None:
            page = self.page(iteration) if iteration in self.paged else Page()
            self._pages[iteration] = page
            self._read = None  # it may change from now on, here and not there
            self.paged.add(iteration)
        return page

    def open_pages(self, touched: set[int], keep: int) -> None:
        """Have the pages of iterations in memory, and those that will be folded away after them."""
        new = 0
        for iteration in touched.difference(self._pages):
            if iteration in self.paged:
                self.open_page(iteration)
            else:
                new += 1
        first_kept = len(self.paged) + new - keep
        if new and first_kept > 0 and not self.alone:
            # However the new ones lie among the others, none before this is pushed further back.
            known = range(self.paged.within(self.horizon, None).start, len(self.paged))
            for iteration in map(self.paged.at, known[: max(0, first_kept - known.start)]):
                if iteration in self.covered and iteration not in self.incomplete:
                    self.open_page(iteration)

    def held_size(self) -> int:
        """Return how many cells and contents the pages in memory have."""
        return sum(map(len, self._pages.values()))

    def old_pages(self, keep: int) -> list[int]:
        """Return what is in memory, changed, and older than the newest `keep`; oldest first."""
        if len(self.paged) <= keep:
            return []
        first_kept = self.paged.at(len(self.paged) - keep)
        return sorted(i for i in self._pages.keys() & self.dirty if i < first_kept)

    def shelve(self, iteration: int, *, keep: bool = False) -> None:
        """Put a page in memory on the shelf, and let go of it here unless it is to be kept too."""
        if self._shelf is not None:
            page = self._pages[iteration] if keep else self._pages.pop(iteration)
            self._shelf.put(self.number, iteration, page)
            self.dirty.discard(iteration)

    def clean(self) -> list[int]:
        """Return what changed in memory, ascending; from now on it counts as saved."""
        changed, self.dirty = self.dirty, set()
        self._lately = changed
        return sorted(changed)

    def forget_pages(self, keep: int) -> None:
        """Let go of saved pages that are older than the newest `keep`, but for what is going on.

        An iteration that changed before the last save and is not complete yet will change again.
        """
        count = len(self.paged)
        newest = {self.paged.at(i) for i in range(max(0, count - keep), count)}
        going_on = self._lately & self.incomplete if keep else set()
        for iteration in self._pages.keys() - newest - going_on - self.dirty:
            del self._pages[iteration]

    def hear(self, rank: int, now: float, dropped: int, highest: int | None) -> None:
        """Note that a rank has reported, and up to which iteration."""
        reporter = self.reporters.get(rank)
        if reporter is None:
            reporter = self.reporters[rank] = Reporter(now)
            if self.launch.world_size is None:
                self.expect_more()
        reporter.last_report = max(reporter.last_report, now)
        reporter.dropped = max(reporter.dropped, dropped)
        if highest is not None:
            reporter.last_iteration = largest(reporter.last_iteration, highest)

    def expect_more(self) -> None:
        """Take back every completeness where a rank is expected that committed nothing yet."""
        if self.expected > len(self.reporters) or self.launch.world_size is None:
            self.incomplete = set(self.covered)

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

    def receive(self, iteration: int, page: Page) -> None:
        """Take over the page of an iteration that was reported to other books.

        Args:
            iteration: of which there is no page here yet.
            page: belongs to this attempt from now on.
        """
        self.paged.add(iteration)
        self._pages[iteration] = page
        self.dirty.add(iteration)
        self.conflicts += len(page.conflicts)
        self.everything.add_page(page)
        if self.remaining is not None and self.cut is not None and iteration < self.cut:
            self.remaining.add_page(page)
        for series in page.series:
            if series not in self.seen:
                self.seen[series] = Iterations()
        self.judge(iteration)

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
        for series in page.series:
            self.seen[series].add(iteration)
        if page.worked:
            self.worked.add(iteration)
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
        del self._gone[-FREED_AT_ONCE:]
        # One rank alone cannot tell whether an iteration is complete.
        if self.alone or len(self.paged) <= keep:
            return
        before, self.horizon = self.horizon, self.paged.at(len(self.paged) - keep)
        newly_old = map(self.paged.at, self.paged.within(before, self.horizon - 1))
        for iteration in {*newly_old, *(i for i in touched if i < before)}:
            complete = iteration in self.covered and iteration not in self.incomplete
            if complete:
                self._fold_away(iteration)

    def _fold_away(self, iteration: int) -> None:
        if gone := self.open_page(iteration).fold_away():
            self.dirty.add(iteration)
            self._gone += gone

    def newest_complete(self) -> int | None:
        """Return the highest complete iteration that is not superseded."""
        for position in reversed(self.covered.within(None, self.last_effective)):
            if (iteration := self.covered.at(position)) not in self.incomplete:
                return iteration
        return None
