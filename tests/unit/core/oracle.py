"""A run's books kept the naive way: a list of everything, added up anew with Fractions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from fractions import Fraction
from typing import Any

from rankfold.coverage import Selection
from rankfold.fold import Fold, Place, ScalarFold
from rankfold.ledger import Attempts
from rankfold.partial import PartialColumns
from rankfold.wire import Receipt, Report, ScalarColumns

UNIT = Fraction(1, 2**1074)
GLOBAL = -1


def rows(columns: PartialColumns | ScalarColumns) -> Iterator[dict[str, Any]]:
    """Yield columns as rows."""
    present = {f.name: column for f in fields(columns) if (column := getattr(columns, f.name))}
    for values in zip(*present.values(), strict=True):
        yield {
            "sum_sq": None,
            "ulp_max": None,
            "total": None,
            "worst": None,
            **dict(zip(present, values, strict=True)),
        }


class Oracle:
    """Everything that was accepted, by identity."""

    def __init__(self) -> None:
        self.partials: dict[tuple[int, int, int, str, int], dict[str, Any]] = {}
        self.scalars: dict[tuple[int, int, int, str, int], dict[str, Any]] = {}
        self.commits: dict[tuple[int, int, int], int] = {}
        self.conflicts: set[tuple[Any, ...]] = set()
        self.bindings: dict[str, tuple[Any, bool]] = {}
        self.ranks: dict[int, set[int]] = {}
        self.sizes: dict[int, int] = {}
        self.mentioned: dict[int, set[int]] = {}

    def take(self, report: Report) -> Receipt:
        """Accept what is new and say what became of each partial and scalar."""
        number, rank = report.attempt, report.rank
        self.ranks.setdefault(number, set()).add(rank)
        mentioned = self.mentioned.setdefault(number, set())
        if report.world_size is not None:
            self.sizes[number] = report.world_size
        words = [self._partial(number, rank, row) for row in rows(report.partials)]
        words += [self._scalar(number, rank, row) for row in rows(report.scalars)]
        for commit in report.commits:
            self._commit(number, rank, commit.iteration, commit.microbatches)
        mentioned.update(report.partials.iteration, report.scalars.iteration)
        mentioned.update(commit.iteration for commit in report.commits)
        return Receipt(*(words.count(word) for word in ("accepted", "duplicate", "conflict")))

    def _partial(self, number: int, rank: int, row: dict[str, Any]) -> str:
        identity = (number, row["iteration"], rank, row["series"], row["microbatch"])
        known = self.partials.setdefault(identity, row)
        limit = self.commits.get((number, row["iteration"], rank), math.inf)
        exact = all(known[f] == row[f] for f in ("count", "valid", "nonfinite", "max"))
        if known is row and row["microbatch"] >= limit:
            del self.partials[identity]
        elif known is row:
            return "accepted"
        elif exact and abs(known["sum"] - row["sum"]) <= 1e-9 * max(known["sum"], row["sum"]):
            return "duplicate"
        self.conflicts.add(("partial", *identity))
        return "conflict"

    def _scalar(self, number: int, rank: int, row: dict[str, Any]) -> str:
        shard = GLOBAL if row["is_global"] else rank
        identity = (number, row["iteration"], shard, row["key"], row["microbatch"])
        binding = (row["rule"], row["is_global"])
        if self.bindings.setdefault(row["key"], binding) == binding:
            known = self.scalars.setdefault(identity, row)
            if known is row:
                return "accepted"
            if repr([known[f] for f in ("value", "weight")]) == repr([row["value"], row["weight"]]):
                return "duplicate"
        self.conflicts.add(("scalar", *identity))
        return "conflict"

    def _commit(self, number: int, rank: int, iteration: int, microbatches: int) -> None:
        highest = max((i[4] for i in self._reported(number, iteration, rank)), default=-1)
        known = self.commits.get((number, iteration, rank))
        if known is None and highest < microbatches:
            self.commits[number, iteration, rank] = microbatches
        elif known != microbatches:
            self.conflicts.add(("commit", number, iteration, rank, microbatches))

    def _reported(self, number: int, iteration: int, rank: int) -> Iterator[tuple[Any, ...]]:
        return (i for i in self.partials if i[:3] == (number, iteration, rank))

    def cut(self, number: int) -> float:
        """Return the iteration from which on later attempts replaced this one."""
        later = (i for n, seen in self.mentioned.items() if n > number for i in seen)
        return min(later, default=math.inf)

    def counts(self, attempts: Attempts, number: int, iteration: int) -> bool:
        """Whether an iteration of an attempt is among those that a reader asks for."""
        if isinstance(attempts, int):
            return number == attempts
        return attempts == "all" or iteration < self.cut(number)

    def totals(self, attempts: Attempts, rank: int | None = None) -> dict[str, Any]:
        """Return every series and key with what its parts add up to."""
        found: dict[str, Any] = {}
        for kind, add_up in (("partials", add_up_series), ("scalars", add_up_scalars)):
            groups: dict[str, list[Any]] = {}
            for identity, row in getattr(self, kind).items():
                number, iteration, reporter, name, microbatch = identity
                if self.counts(attempts, number, iteration) and rank in (None, reporter):
                    place = Place(iteration, microbatch, reporter, number)
                    groups.setdefault(name, []).append((place, row))
            found |= {name: add_up(group) for name, group in groups.items()}
        if rank is not None:  # worst tokens are kept over all ranks alone
            found |= {n: {**parts, "worst": []} for n, parts in found.items() if "worst" in parts}
        return found

    def expected(self, number: int) -> set[int]:
        """Return the ranks that an attempt should have."""
        size = self.sizes.get(number)
        return self.ranks[number] if size is None else set(range(size))

    def verdict(self, number: int, iteration: int, series: tuple[str, ...]) -> set[str]:
        """Return which of complete, incomplete and absent hold of an iteration, by definition."""
        committed = {
            rank: n for (a, i, rank), n in self.commits.items() if (a, i) == (number, iteration)
        }
        reported = {(*i[2:4], i[4]) for i in self.partials if i[:2] == (number, iteration)}
        names = {name for _, name, _ in reported}
        owed = {
            (rank, name, m)
            for rank, n in committed.items()
            for name in names.intersection(series)
            for m in range(n)
        }
        words = set()
        if set(committed) != self.expected(number) or not owed <= reported:
            words.add("incomplete")
        if any(committed.values()) and not names.issuperset(series):
            words.add("absent")
        return words or {"complete"}

    def covered(self, number: int) -> list[int]:
        """Return the iterations of which a partial or a commit speaks, ascending."""
        spoken = {i[1] for i in self.partials if i[0] == number}
        return sorted(spoken | {i for a, i, _ in self.commits if a == number})

    def coverage(self, selection: Selection) -> dict[str, Any]:
        """Return what the ledger's coverage must say of a selection."""
        attempts = selection.attempts
        judged = "effective" if attempts == "all" else attempts
        names = selection.series or tuple(
            sorted({i[3] for i in self.partials if self.counts(judged, i[0], i[1])})
        )
        found: dict[str, list[int]] = {"complete": [], "incomplete": [], "absent": []}
        opened, spoken = [], []
        for number in sorted(self.ranks):
            beyond = max(
                (
                    i
                    for a, i, _ in self.commits
                    if a >= number and (a == number or not isinstance(attempts, int))
                ),
                default=-1,
            )
            for iteration in self.covered(number):
                low, high = selection.first, selection.last
                if (
                    not self.counts(judged, number, iteration)
                    or (low is not None and iteration < low)
                    or (high is not None and iteration > high)
                ):
                    continue
                spoken.append(iteration)
                words = self.verdict(number, iteration, names)
                for word in words:
                    found[word].append(iteration)
                if "complete" not in words and beyond < iteration + 2:
                    opened.append(iteration)
        return {
            "first": min(spoken, default=None),
            "last": max(spoken, default=None),
            "complete": len(found["complete"]),
            "incomplete": found["incomplete"],
            "absent": found["absent"],
            "open": opened,
        }

    def newest_complete(self) -> int | None:
        """Return the highest iteration that is complete for each series reported in it."""
        return max(
            (
                iteration
                for number in self.ranks
                for iteration in self.covered(number)
                if iteration < self.cut(number)
                and "incomplete"
                not in self.verdict(number, iteration, tuple({i[3] for i in self.partials}))
            ),
            default=None,
        )


def add_up_series(group: list[tuple[Place, dict[str, Any]]]) -> dict[str, Any]:
    """Return the parts of one series added up."""
    maxima = [row["max"] for _, row in group if row["max"] is not None]
    squared = [row for _, row in group if row["sum_sq"] is not None]
    worst = [(place, row["worst"]) for place, row in group if row["worst"] is not None]
    return {
        "partials": len(group),
        "valid": sum(row["valid"] for _, row in group),
        "count": sum(row["count"] for _, row in group),
        "nonfinite": sum(row["nonfinite"] for _, row in group),
        "sum": sum((Fraction(row["sum"]) for _, row in group), Fraction()),
        "max": max(maxima, default=None),
        "min": min(maxima, default=None),
        "moments": _moments(squared) if squared else None,
        "ulp_max": max(_present(group, "ulp_max"), default=None),
        "total": sum(_present(group, "total")) if _present(group, "total") else None,
        "worst": sorted(worst, key=_badness)[:16],
    }


def _moments(squared: list[dict[str, Any]]) -> list[Any]:
    return [
        sum(row["valid"] - row["nonfinite"] for row in squared),
        sum(Fraction(row["sum"]) for row in squared),
        sum(Fraction(row["sum_sq"]) for row in squared),
    ]


def _badness(token: tuple[Place, Any]) -> tuple[Any, ...]:
    place, worst = token
    distance = abs(worst.a - worst.b)
    distance = distance if math.isfinite(distance) else math.inf
    return (-distance, -worst.ulp, place)


def _present(group: list[tuple[Place, dict[str, Any]]], field: str) -> list[int]:
    return [row[field] for _, row in group if row[field] is not None]


def add_up_scalars(group: list[tuple[Place, dict[str, Any]]]) -> dict[str, Any]:
    """Return the values of one key added up."""
    finite = [(p, row["value"], row["weight"]) for p, row in group if math.isfinite(row["value"])]
    return {
        "values": len(finite),
        "nonfinite": len(group) - len(finite),
        "weight": sum(weight for _, _, weight in finite),
        "sum": sum((Fraction(value) for _, value, _ in finite), Fraction()),
        "weighted": sum((Fraction(value) * weight for _, value, weight in finite), Fraction()),
        "max": max((value for _, value, _ in finite), default=None),
        "min": min((value for _, value, _ in finite), default=None),
        "last": max(((place, value) for place, value, _ in finite), default=None),
    }


def shown(fold: Fold | ScalarFold) -> dict[str, Any]:
    """Return a fold as the oracle writes it."""
    parts = fold._asdict()
    parts["sum"] = fold.sum * UNIT
    if isinstance(fold, ScalarFold):
        parts["weighted"] = fold.weighted * UNIT
        return parts
    parts["worst"] = [(token.place, token.worst) for token in fold.worst]
    if fold.moments:
        positions, total, squares = fold.moments
        parts["moments"] = [positions, total * UNIT, squares * UNIT]
    return parts
