"""What is known of a run as a whole, whichever rank said it first: it hardly ever changes."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import NamedTuple

from rankfold.errors import Inconsistent, NotFound, TooLarge
from rankfold.rules import Rule, RuleSet
from rankfold.wire import MAX_META, Report, field_error

MAX_NAMES = 2_000


class Binding(NamedTuple):
    """How a scalar key is folded in this run: as it was first reported."""

    rule: Rule
    is_global: bool


@dataclass(slots=True)
class Launch:
    """What is known of one attempt as a whole.

    Attributes:
        first_report: when the first report arrived, in seconds since the epoch.
        world_size: how many ranks it has, or None while nobody said.
        meta: what describes it; the first value of each name stays.
        finished: somebody said that it is over.
        first_iteration: the lowest iteration that it reported.
        highest_rank: the highest rank that has reported, as long as the world size is not
            known; otherwise -1.
    """

    first_report: float
    world_size: int | None = None
    meta: dict[str, str] = field(default_factory=dict)
    finished: bool = False
    first_iteration: int | None = None
    highest_rank: int = -1


@dataclass(slots=True)
class Facts:
    """What is known of a run as a whole. What a report adds here is never taken back.

    Attributes:
        rules: the rules in force, for the names of the keys.
        launches: by number of the attempt.
        bindings: by scalar key, its rule.
        series: the names of all series that were reported.
    """

    rules: RuleSet
    launches: dict[int, Launch] = field(default_factory=dict)
    bindings: dict[str, Binding] = field(default_factory=dict)
    series: set[str] = field(default_factory=set)

    def check(self, report: Report) -> None:
        """Refuse a report that contradicts the run.

        Raises:
            Inconsistent: it contradicts the attempt's world size or the run's names.
            TooLarge: the run would have more than `MAX_NAMES` series or keys.
        """
        launch = self.launches.get(report.attempt)
        first = launch.world_size if launch else None
        said = report.world_size
        if first is not None and said is not None and said != first:
            reason = f"{said}, but the attempt began with {first}"
            raise Inconsistent([field_error(reason, "world_size")])
        size = first if said is None else said
        if size is not None:
            # A size that is known already bounds the ranks that reported before.
            earlier = launch.highest_rank if launch and first is None else -1
            highest = max(report.rank, earlier)
            if highest >= size:
                where = "rank" if highest == report.rank else "world_size"
                reason = f"rank {highest} is not below the world size {size}"
                raise Inconsistent([field_error(reason, where)])
        self._check_names(report)

    def _check_names(self, report: Report) -> None:
        """Refuse a scalar key that is also a key of a series: one name has one value."""
        if self._know_names(report):
            return
        keys = self.bindings.keys() | report.scalars.key
        series = self.series.union(report.partials.series)
        if max(len(series), len(keys)) > MAX_NAMES:
            raise TooLarge(f"a run may have {MAX_NAMES} series and as many scalar keys")
        owners = {
            f"{name}_{key.suffix}": name for name in series for key in self.rules.keys_of(name)
        }
        taken = sorted(owners.keys() & keys)
        if taken:
            reason = f"the key {taken[0]!r} belongs to the series {owners[taken[0]]!r}"
            where = "scalars" if taken[0] not in self.bindings else "partials"
            raise Inconsistent([field_error(reason, where)])

    def know(self, report: Report, lowest: int | None) -> bool:
        """Whether `learn` would change nothing.

        Args:
            report: which was checked, or will be.
            lowest: the lowest iteration of which it speaks.
        """
        launch = self.launches.get(report.attempt)
        if launch is None:
            return False
        if launch.world_size is None and (
            report.world_size is not None or report.rank > launch.highest_rank
        ):
            return False
        if lowest is not None and _lower(lowest, launch.first_iteration):
            return False
        if report.meta and len(launch.meta) < MAX_META and report.meta.keys() - launch.meta.keys():
            return False
        return self._know_names(report)

    def _know_names(self, report: Report) -> bool:
        known_series = self.series.issuperset(report.partials.series)
        return known_series and all(key in self.bindings for key in report.scalars.key)

    def learn(self, report: Report, lowest: int | None, now: float) -> bool:
        """Take what a report says of the run as a whole.

        Returns:
            whether its attempt begins lower than was known, which supersedes earlier ones.
        """
        launch = self.launches.get(report.attempt)
        if launch is None:
            launch = self.launches[report.attempt] = Launch(now)
        if launch.world_size is None:
            launch.world_size = report.world_size
            known = launch.world_size is not None
            launch.highest_rank = -1 if known else max(launch.highest_rank, report.rank)
        for name, value in report.meta.items():
            if len(launch.meta) < MAX_META:
                launch.meta.setdefault(name, value)
        self.series.update(report.partials.series)
        scalars = report.scalars
        for key, rule, is_global in zip(scalars.key, scalars.rule, scalars.is_global, strict=True):
            self.bindings.setdefault(key, Binding(rule, is_global))
        if lowest is None or not _lower(lowest, launch.first_iteration):
            return False
        launch.first_iteration = lowest
        return True

    def become(self, newer: Facts) -> None:
        """Take over what somebody else has learned since; what is known is only added to."""
        for number, launch in newer.launches.items():
            known = self.launches.setdefault(number, launch)
            for each in fields(Launch):
                setattr(known, each.name, getattr(launch, each.name))
        self.bindings.update(newer.bindings)
        self.series |= newer.series

    def finish(self, attempt: int, run: str) -> None:
        """Mark an attempt finished; again changes nothing.

        Raises:
            NotFound: no report of that attempt has arrived.
        """
        if attempt not in self.launches:
            raise NotFound(f"run {run!r} has no attempt {attempt}")
        self.launches[attempt].finished = True

    def cut(self, attempt: int) -> int | None:
        """Return the iteration from which on later attempts superseded one, or None."""
        later = (
            launch.first_iteration
            for number, launch in self.launches.items()
            if number > attempt and launch.first_iteration is not None
        )
        return min(later, default=None)


def _lower(iteration: int, than: int | None) -> bool:
    return than is None or iteration < than
