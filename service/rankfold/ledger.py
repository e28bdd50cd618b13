"""A run's books: takes reports exactly once and keeps every fold that the answers need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Literal, NamedTuple

from rankfold.attempt import Attempt, Shelf
from rankfold.errors import Inconsistent, NotFound, TooLarge
from rankfold.fold import Fold, Place, ScalarFold, Table
from rankfold.page import GLOBAL, Conflict, Sorted
from rankfold.partial import picker
from rankfold.rules import Rule, RuleSet
from rankfold.scope import Gains
from rankfold.wire import Receipt, Report, field_error

Attempts = Literal["effective", "all"] | int

KEPT_CONFLICTS = 100
KEPT_ITERATIONS = 16
MAX_NAMES = 2_000

_states = count()


class Binding(NamedTuple):
    """How a scalar key is folded in this run: as it was first reported."""

    rule: Rule
    is_global: bool


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


@dataclass
class Ledger:
    """Everything known of one run.

    Attributes:
        project: the run's project.
        run: its name.
        rules: the rules in force, for the names of the keys.
        attempts: by number.
        bindings: by scalar key, its rule.
        notes: the first conflicts, for people to look at.
        shelf: where pages are that are not in memory; without one, all are.
        version: a number that no other state of a ledger in this process has had.
    """

    project: str
    run: str
    rules: RuleSet
    attempts: dict[int, Attempt] = field(default_factory=dict)
    bindings: dict[str, Binding] = field(default_factory=dict)
    notes: list[ConflictNote] = field(default_factory=list)
    shelf: Shelf | None = None
    version: int = field(default_factory=partial(next, _states), compare=False)

    def apply(self, report: Report, now: float, keep: int = KEPT_ITERATIONS) -> Receipt:
        """Take a whole report, or nothing of it.

        Args:
            report: valid in itself; what contradicts the run is found here.
            now: when it arrived, in seconds since the epoch.
            keep: of how many of the newest iterations the contents stay known; a late copy of an
                older, complete one is a duplicate whatever its content.

        Raises:
            Inconsistent: it contradicts the attempt's world size or the run's names.
            TooLarge: the run would have more than `MAX_NAMES` series or keys.
        """
        self._check(report)
        return self.take(report, now, keep)

    def take(self, report: Report, now: float, keep: int = KEPT_ITERATIONS) -> Receipt:
        """Take a report that was applied before: what `apply` does after its checks."""
        self.version = next(_states)
        attempt = self._attempt(report.attempt, now)
        if attempt.world_size is None and report.world_size is not None:
            attempt.set_world_size(report.world_size)
        attempt.hear(report.rank, now, report.dropped, report.meta)
        tally = Tally()
        touched = {
            *report.partials.iteration,
            *report.scalars.iteration,
            *(commit.iteration for commit in report.commits),
        }
        if touched:
            self._reach(attempt, report.rank, min(touched), max(touched))
        if len(report.partials):
            self._take_partials(attempt, report, tally)
        if len(report.scalars):
            self._take_scalars(attempt, report, tally)
        self._take_commits(attempt, report)
        for iteration in touched:
            attempt.judge(iteration)
        attempt.fold_away(touched, keep)
        return Receipt(tally.accepted, tally.duplicates, tally.conflicts)

    def finish(self, number: int) -> None:
        """Mark an attempt finished; again changes nothing.

        Raises:
            NotFound: no report of that attempt has arrived.
        """
        if number not in self.attempts:
            raise NotFound(f"run {self.run!r} has no attempt {number}")
        self.version = next(_states)
        self.attempts[number].finished = True

    @property
    def latest(self) -> Attempt:
        """The attempt with the highest number."""
        return self.attempts[max(self.attempts)]

    @property
    def finished(self) -> bool:
        """Whether the latest attempt is finished."""
        return self.latest.finished

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

    def series_names(self) -> list[str]:
        """Return the series that any attempt reported, sorted."""
        return sorted({s for a in self.attempts.values() for s in a.seen})

    def _attempt(self, number: int, now: float) -> Attempt:
        attempt = self.attempts.get(number)
        if attempt is None:
            attempt = self.attempts[number] = self.new_attempt(number, now)
            for later in sorted(self.attempts):
                first = self.attempts[later].first_iteration
                if later > number and first is not None:
                    attempt.supersede(first)
        return attempt

    def new_attempt(self, number: int, now: float) -> Attempt:
        """Return an empty attempt that finds its pages where this ledger keeps them."""
        return Attempt(number, now, self.shelf)

    def _check(self, report: Report) -> None:
        """Refuse what contradicts the run, before anything is changed."""
        attempt = self.attempts.get(report.attempt)
        first = attempt.world_size if attempt else None
        said = report.world_size
        if first is not None and said is not None and said != first:
            reason = f"{said}, but the attempt began with {first}"
            raise Inconsistent([field_error(reason, "world_size")])
        size = first if said is None else said
        if size is not None:
            # A size that is known already bounds the ranks that reported before.
            earlier = attempt.reporters if attempt and first is None else ()
            highest = max(report.rank, *earlier) if earlier else report.rank
            if highest >= size:
                where = "rank" if highest == report.rank else "world_size"
                reason = f"rank {highest} is not below the world size {size}"
                raise Inconsistent([field_error(reason, where)])
        self._check_names(report)

    def _check_names(self, report: Report) -> None:
        """Refuse a scalar key that is also a key of a series: one name has one value."""
        attempt = self.attempts.get(report.attempt)
        new_series = set(report.partials.series).difference(attempt.seen if attempt else ())
        new_keys = set(report.scalars.key).difference(self.bindings)
        if not new_series and not new_keys:
            return
        known = self.series_names()
        new_series.difference_update(known)
        if max(len(known) + len(new_series), len(self.bindings) + len(new_keys)) > MAX_NAMES:
            raise TooLarge(f"a run may have {MAX_NAMES} series and as many scalar keys")
        owners = {
            f"{series}_{key.suffix}": series
            for series in [*known, *sorted(new_series)]
            for key in self.rules.keys_of(series)
        }
        taken = sorted(owners.keys() & (new_keys | self.bindings.keys()))
        if taken:
            reason = f"the key {taken[0]!r} belongs to the series {owners[taken[0]]!r}"
            raise Inconsistent([field_error(reason, "scalars" if new_keys else "partials")])

    def _take_partials(self, attempt: Attempt, report: Report, tally: Tally) -> None:
        rank, columns, gains = report.rank, report.partials, Gains()
        everything, detailed = columns.contents(), columns.detailed
        for (iteration, series), rows in _groups(columns.iteration, columns.series):
            contents = picker(rows)(everything)
            sorted_ = attempt.open_page(iteration).enter_partials(rank, series, contents)
            tally.add(sorted_)
            if sorted_.accepted:
                whole = len(sorted_.accepted) == len(rows)
                pick = picker(sorted_.accepted)
                fold = Fold.of(contents if whole else pick(contents))
                if detailed:
                    part = columns.at(rows if whole else pick(rows))
                    fold = fold.detailed(part, rank, attempt.number)
                attempt.fold_series(iteration, rank, series, fold)
                gains.series.append((iteration, series, fold))
            for i in sorted_.conflicts:
                conflict = Conflict("partial", series, rank, contents[i][0])
                self._note(attempt, iteration, conflict)
        attempt.add(rank, gains)

    def _take_scalars(self, attempt: Attempt, report: Report, tally: Tally) -> None:
        columns = report.scalars
        gains = {rank: Gains() for rank in (GLOBAL, report.rank)}
        for (iteration, key, rule, is_global), rows in _groups(
            columns.iteration, columns.key, columns.rule, columns.is_global
        ):
            rank = GLOBAL if is_global else report.rank
            microbatches = [columns.microbatch[i] for i in rows]
            page = attempt.open_page(iteration)
            if self.bindings.setdefault(key, Binding(rule, is_global)) == (rule, is_global):
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

    def _reach(self, attempt: Attempt, rank: int, lowest: int, highest: int) -> None:
        """Note how far a rank is; a new first iteration supersedes what earlier attempts did."""
        if attempt.reach(rank, lowest, highest):
            for number, earlier in self.attempts.items():
                if number < attempt.number:
                    earlier.supersede(lowest)

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
