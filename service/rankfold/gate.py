"""The verdict on a run: pass, fail, invalid, incomplete or no_data, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rankfold.coverage import Coverage
from rankfold.exact import mean
from rankfold.fold import Fold


class Gate(StrEnum):
    """The five verdicts, in their order of precedence after `fail`."""

    FAIL = "fail"
    INVALID = "invalid"
    INCOMPLETE = "incomplete"
    NO_DATA = "no_data"
    PASS = "pass"  # noqa: S105 - a verdict, not a password


@dataclass(frozen=True, slots=True)
class Policy:
    """What the caller demands.

    Attributes:
        max_mismatch_count: a series with more mismatching positions fails.
        max_diff_max: a series with a larger |a - b|, or a non-finite one, fails.
        max_diff_mean: a series with a larger mean |a - b|, or a non-finite one, fails.
        require_finished: a run that is not finished is incomplete.
        allow_absent: an iteration without a series is no gap.
        live: leave iterations in progress out.
    """

    max_mismatch_count: int = 0
    max_diff_max: float | None = None
    max_diff_mean: float | None = None
    require_finished: bool = False
    allow_absent: bool = False
    live: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a verdict is made from.

    Attributes:
        series: the folds of the selected series, without what a live verdict leaves out; a
            selected one that was never reported is empty.
        coverage: of the same selection.
        conflicts: over all attempts.
        dropped: partials that ranks gave up, in attempts that are not superseded.
        finished: the latest attempt was marked finished.
        stale: nothing has been heard for longer than the operator allows.
        outside: that the selected iterations are beyond what the run has, in words, if they are.
    """

    series: Mapping[str, Fold]
    coverage: Coverage
    conflicts: int = 0
    dropped: int = 0
    finished: bool = False
    stale: bool = False
    outside: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate and its reasons in words, the weightiest first."""

    gate: Gate
    reasons: list[str]


def evaluate(policy: Policy, evidence: Evidence) -> Verdict:
    """Return the weightiest verdict that applies, with the reasons for it and for lesser ones."""
    found = [
        *((Gate.FAIL, reason) for reason in _failures(policy, evidence)),
        *((Gate.INVALID, reason) for reason in _conflicts(evidence)),
        *((Gate.INCOMPLETE, reason) for reason in _gaps(policy, evidence)),
        *((Gate.NO_DATA, reason) for reason in _empty(policy, evidence)),
    ]
    if not found:
        return Verdict(Gate.PASS, [_clean(evidence)])
    return Verdict(found[0][0], [reason for _, reason in found])


def _failures(policy: Policy, evidence: Evidence) -> Iterator[str]:
    for name, fold in sorted(evidence.series.items()):
        if fold.count > policy.max_mismatch_count:
            allowed = f", {policy.max_mismatch_count} allowed" if policy.max_mismatch_count else ""
            yield f"{name}: {fold.count} of {fold.valid} positions mismatch{allowed}"
        for word, limit, value in _limited(policy, fold):
            if fold.nonfinite:
                yield f"{name}: {fold.nonfinite} differences are not finite, {word} limit {limit}"
            elif value is not None and value > limit:
                yield f"{name}: {word} difference {value} is over {limit}"


def _limited(policy: Policy, fold: Fold) -> Iterator[tuple[str, float, float | None]]:
    """Yield what the caller has set a limit to: its name, the limit and the value."""
    if policy.max_diff_max is not None:
        yield "max", policy.max_diff_max, fold.max
    if policy.max_diff_mean is not None:
        value = mean(fold.sum, fold.finite) if fold.finite else None
        yield "mean", policy.max_diff_mean, value


def _conflicts(evidence: Evidence) -> Iterator[str]:
    if evidence.conflicts:
        yield (
            f"{_count(evidence.conflicts, 'conflict')}: the same identity was reported with other "
            "content (two processes claim one shard, a restart reports as the same attempt, or a "
            "recompute was not deterministic)"
        )


def in_progress(policy: Policy, coverage: Coverage, *, over: bool) -> frozenset[int]:
    """Return the iterations, incomplete or absent, that a live verdict leaves out.

    Args:
        policy: only a live one leaves anything out.
        coverage: which iterations are open.
        over: the run is finished or stale, so that nothing is in progress.
    """
    return frozenset(coverage.open if policy.live and not over else ())


def _gaps(policy: Policy, evidence: Evidence) -> Iterator[str]:
    covered = evidence.coverage
    over = evidence.finished or evidence.stale
    waiting = in_progress(policy, covered, over=over)
    late = [i for i in covered.incomplete if i not in waiting]
    absent = [i for i in covered.absent if i not in waiting]
    if late:
        which = _listed(late)
        yield f"{_count(len(late), 'iteration')} incomplete: {which}{_who(covered, late)}"
    if absent and not policy.allow_absent:
        yield f"{_count(len(absent), 'iteration')} without a series: {_listed(absent)}"
    if covered.silent and (over or not policy.live):
        yield f"ranks that never reported: {_listed(covered.silent)} of {covered.expected}"
    if evidence.dropped:
        yield f"ranks had to give up {_given_up(evidence.dropped)}: their logs say why"
    if policy.require_finished and not evidence.finished:
        yield "the run is not finished"


def _empty(policy: Policy, evidence: Evidence) -> Iterator[str]:
    if evidence.outside:
        yield evidence.outside
    elif not evidence.series:
        yield "no series was reported"
    if policy.live and not evidence.coverage.complete:
        yield "no iteration is complete yet"
    for name, fold in sorted(evidence.series.items()):
        if not fold.partials:
            yield f"{name}: nothing was reported"
        elif fold.total == 0:
            yield f"{name}: no position to compare, the tensors are empty"
        elif not fold.valid:
            yield f"{name}: no position was under the mask"


def _clean(evidence: Evidence) -> str:
    positions = sum(fold.valid for fold in evidence.series.values())
    mismatches = sum(fold.count for fold in evidence.series.values())
    tolerated = f", {_count(mismatches, 'mismatch', 'mismatches')} tolerated" if mismatches else ""
    complete = _count(evidence.coverage.complete, "complete iteration")
    return f"{_count(positions, 'position')} compared in {complete}{tolerated}"


def _given_up(number: int) -> str:
    return _count(number, "partial or scalar", "partials or scalars")


def _count(number: int, word: str, words: str | None = None) -> str:
    return f"{number} {word if number == 1 else words or word + 's'}"


def _listed(numbers: list[int], most: int = 10) -> str:
    shown = ", ".join(map(str, numbers[:most]))
    return shown + (", ..." if len(numbers) > most else "")


def _who(covered: Coverage, late: list[int]) -> str:
    iterations = set(late)
    ranks = sorted({m.rank for m in covered.missing if m.iteration in iterations})
    word = "rank" if len(ranks) == 1 else "ranks"
    return f" ({word} {_listed(ranks)})" if ranks else ""
