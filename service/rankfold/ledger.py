"""A run's books: takes reports exactly once and keeps every fold that the answers need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal, NamedTuple

from rankfold.attempt import Attempt, Shelf
from rankfold.errors import NotFound
from rankfold.facts import Facts
from rankfold.fold import Fold, Place, ScalarFold, Table
from rankfold.iterations import Iterations
from rankfold.page import GLOBAL, Conflict, Sorted
from rankfold.partial import picker
from rankfold.scope import Gains
from rankfold.wire import Receipt, Report

Attempts = Literal["effective", "all"] | int

KEPT_CONFLICTS = 100
KEPT_ITERATIONS = 16

_states = count()


class ConflictNote(NamedTuple):
    """A conflict with where it happened and what the two sides said, in words."""

    attempt: int
    iteration: int
    conflict: Conflict
    reason: str


@dataclass(slots=True)
class Tally:
    """Counts what becomes of a report's partials and scalars while it is taken."""

    accepted: int = 0
    duplicates: int = 0
    conflicts: int = 0

    def add(self, sorted_: Sorted) -> None:
        """Count a group."""
        self.accepted += len(sorted_.accepted)
        self.duplicates += len(sorted_.duplicates)
        self.conflicts += len(sorted_.conflicts)


class Ledger:
    """Everything known of one run, or what one of its ranks has reported.

    Attributes:
        project: the run's project.
        run: its name.
        facts: what is known of the run as a whole.
        of: the rank whose books these are, `GLOBAL` for what belongs to no rank, or None for all.
        attempts: by number.
        notes: the first conflicts, for people to look at.
        shelf: where pages are that are not in memory; without one, all are.
        version: a number that no other state of a ledger in this process has had.
    """

    def __init__(
        self,
        project: str,
        run: str,
        facts: Facts,
        *,
        of: int | None = None,
        shelf: Shelf | None = None,
    ) -> None:
        self.project = project
        self.run = run
        self.facts = facts
        self.of = of
        self.shelf = shelf
        self.attempts: dict[int, Attempt] = {}
        self.notes: list[ConflictNote] = []
        self.version = next(_states)

    def apply(self, report: Report, now: float, keep: int = KEPT_ITERATIONS) -> Receipt:
        """Take a whole report, or nothing of it.

        Args:
            report: valid in itself; what contradicts the run is found here.
            now: when it arrived, in seconds since the epoch.
            keep: of how many of the newest iterations the contents stay known; a late copy of an
                older, complete one is a duplicate whatever its content.

        Raises:
            Inconsistent: it contradicts the attempt's world size or the run's names.
            TooLarge: the run would have too many names.
        """
        touched = self.check(report, keep)
        return self.take(report, touched, now, keep)

    def check(self, report: Report, keep: int) -> set[int]:
        """Find out whether a report can be taken; what is raised here has changed nothing.

        A shelf's errors are met here too, unless the report supersedes what was reported before.

        Returns:
            the iterations of which it speaks.
        """
        self.facts.check(report)
        touched = report.iterations()
        self.open_pages(report.attempt, touched, keep)
        return touched

    def open_pages(self, number: int, touched: set[int], keep: int) -> None:
        """Have in memory what `enter` works on."""
        if attempt := self.attempts.get(number):
            attempt.open_pages(touched, keep)

    def take(self, report: Report, touched: set[int], now: float, keep: int) -> Receipt:
        """Take a report that was checked, now or before it was journaled."""
        known = self.attempts.get(report.attempt)
        size_before = known.launch.world_size if known else None
        begins_lower = self.facts.learn(report, min(touched, default=None), now)
        attempt = self.open_attempt(report.attempt)
        if begins_lower:
            self.heed_cuts()
        if attempt.launch.world_size != size_before:
            attempt.expect_more()
        return self.enter(report, touched, now, keep)

    def enter(self, report: Report, touched: set[int], now: float, keep: int) -> Receipt:
        """Enter what belongs into these books of a report of which the facts were learned.

        Args:
            report: the whole of it.
            touched: the iterations of which it speaks.
            now: when it arrived, in seconds since the epoch.
            keep: of how many of the newest iterations the contents stay known.
        """
        self.version = next(_states)
        attempt = self.open_attempt(report.attempt)
        tally = Tally()
        if self.of != GLOBAL:
            attempt.hear(report.rank, now, report.dropped, max(touched, default=None))
            if len(report.partials):
                self._take_partials(attempt, report, tally)
            self._take_commits(attempt, report)
        if len(report.scalars):
            self._take_scalars(attempt, report, tally)
        if self.of is not None:
            touched = {iteration for iteration in touched if iteration in attempt.paged}
        for iteration in touched:
            attempt.judge(iteration)
        attempt.fold_away(touched, keep)
        return Receipt(tally.accepted, tally.duplicates, tally.conflicts)

    def finish(self, number: int) -> None:
        """Mark an attempt finished; again changes nothing.

        Raises:
            NotFound: no report of that attempt has arrived.
        """
        self.facts.finish(number, self.run)
        self.version = next(_states)

    def heed_cuts(self) -> None:
        """Leave out of the effective folds what the facts say that later attempts superseded."""
        for attempt in self.attempts.values():
            self._heed_cut(attempt)

    def _heed_cut(self, attempt: Attempt) -> None:
        cut = self.facts.cut(attempt.number)
        if cut is not None:
            attempt.supersede(cut)

    @property
    def latest(self) -> Attempt:
        """The attempt with the highest number."""
        return self.attempts[max(self.attempts)]

    @property
    def finished(self) -> bool:
        """Whether the latest attempt is finished."""
        return self.latest.launch.finished

    @property
    def last_report(self) -> float:
        """When the last report of any attempt arrived, in seconds since the epoch."""
        return max(a.last_report for a in self.attempts.values())

    @property
    def conflicts(self) -> int:
        """How many things are in conflict, over all attempts."""
        return sum(a.conflicts for a in self.attempts.values())

    def chosen(self, attempts: Attempts) -> list[Attempt]:
        """Return the attempts that a reader asks for, by number.

        Raises:
            NotFound: it asks for one that has not reported.
        """
        if isinstance(attempts, int):
            if attempts not in self.attempts:
                raise NotFound(f"run {self.run!r} has no attempt {attempts}")
            return [self.attempts[attempts]]
        return [self.attempts[number] for number in sorted(self.attempts)]

    def totals(self, attempts: Attempts, rank: int | None = None) -> Table:
        """Return the folds over all iterations; its cost does not depend on their number."""
        return Table.union(
            (a.effective if attempts == "effective" else a.everything).of(rank)
            for a in self.chosen(attempts)
        )

    def open_attempt(self, number: int) -> Attempt:
        """Return an attempt that the facts know, to work on, a new one where there is none."""
        attempt = self.attempts.get(number)
        if attempt is None:
            attempt = self.attempts[number] = self.new_attempt(number)
            self._heed_cut(attempt)
        return attempt

    def new_attempt(self, number: int) -> Attempt:
        """Return an empty attempt that finds its pages where this ledger keeps them."""
        launch = self.facts.launches[number]
        return Attempt(number, launch, self.shelf, alone=self.of is not None)

    def _take_partials(self, attempt: Attempt, report: Report, tally: Tally) -> None:
        rank, columns, gains = report.rank, report.partials, Gains()
        everything, detailed = columns.contents(), columns.detailed
        for series in set(columns.series).difference(attempt.seen):
            attempt.seen[series] = Iterations()
        for (iteration, series), rows in _groups(columns.iteration, columns.series):
            contents = picker(rows)(everything)
            page = attempt.open_page(iteration)
            sorted_ = page.enter_partials(rank, series, contents)
            tally.add(sorted_)
            if accepted := sorted_.accepted:
                whole = len(accepted) == len(rows)
                fold = Fold.of(contents if whole else picker(accepted)(contents))
                if detailed:
                    part = columns.at(rows if whole else picker(accepted)(rows))
                    # What is not among the worst of its iteration is among those of no total.
                    least = page.table.series.get(series, fold).least
                    fold = fold.detailed(part, rank, attempt.number, least)
                attempt.fold_series(iteration, rank, series, fold)
                gains.series.append((iteration, series, fold))
            for i in sorted_.conflicts:
                conflict = Conflict("partial", series, rank, contents[i][0])
                self._note(attempt, iteration, conflict)
        attempt.add(rank, gains)

    def _take_scalars(self, attempt: Attempt, report: Report, tally: Tally) -> None:
        columns = report.scalars
        gains = {rank: Gains() for rank in (GLOBAL, report.rank) if self.of in (None, rank)}
        for (iteration, key, rule, is_global), rows in _groups(
            columns.iteration, columns.key, columns.rule, columns.is_global
        ):
            rank = GLOBAL if is_global else report.rank
            if rank not in gains:
                continue
            microbatches = [columns.microbatch[i] for i in rows]
            page = attempt.open_page(iteration)
            if self.facts.bindings[key] == (rule, is_global):
                contents = [
                    (columns.microbatch[i], columns.value[i], columns.weight[i], rule) for i in rows
                ]
                sorted_ = page.enter_scalars(rank, key, contents)
            else:
                sorted_ = Sorted([], [], list(range(len(rows))))
            tally.add(sorted_)
            for i in sorted_.accepted:
                place = Place(iteration, microbatches[i], rank, attempt.number)
                row = rows[i]
                fold = ScalarFold.of(columns.value[row], columns.weight[row], place)
                attempt.fold_scalar(iteration, rank, key, fold)
                gains[rank].scalars.append((iteration, key, fold))
            for i in sorted_.conflicts:
                self._note(attempt, iteration, Conflict("scalar", key, rank, microbatches[i]))
        for rank, gained in gains.items():
            attempt.add(rank, gained)

    def _take_commits(self, attempt: Attempt, report: Report) -> None:
        for commit in report.commits:
            attempt.open_page(commit.iteration)
            if not attempt.commit(commit.iteration, report.rank, commit.microbatches):
                conflict = Conflict("commit", "", report.rank, commit.microbatches)
                self._note(attempt, commit.iteration, conflict)

    def _note(self, attempt: Attempt, iteration: int, conflict: Conflict) -> None:
        """Count a conflict once, however often it is sent."""
        if attempt.note(iteration, conflict) and len(self.notes) < KEPT_CONFLICTS:
            self.notes.append(ConflictNote(attempt.number, iteration, conflict, _words(conflict)))


def _groups(*columns: Sequence[object]) -> Iterator[tuple[tuple, list[int]]]:  # type: ignore[type-arg]
    """Yield each distinct row of the columns with the indices where it stands, in order."""
    rows = list(zip(*columns, strict=True))
    if rows[0] == rows[-1] and rows.count(rows[0]) == len(rows):
        yield rows[0], list(range(len(rows)))
        return
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        groups[row].append(index)
    yield from groups.items()


def _words(conflict: Conflict) -> str:
    match conflict.kind:
        case "commit":
            return (
                f"rank {conflict.rank} committed {conflict.microbatch} microbatches, "
                "which contradicts its earlier word or what was reported"
            )
        case "partial":
            return (
                f"rank {conflict.rank} reported microbatch {conflict.microbatch} of "
                f"{conflict.name} again with other content, or beyond its commit"
            )
        case _:
            who = "the ranks" if conflict.rank == GLOBAL else f"rank {conflict.rank}"
            return (
                f"{who} reported microbatch {conflict.microbatch} of {conflict.name} "
                "again with other content, or by another rule"
            )
