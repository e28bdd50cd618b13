"""What a run is at this moment: its state, its verdict, what the gauges show of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from rankfold import answers
from rankfold.coverage import LISTED, Selection, coverage
from rankfold.facts import Binding
from rankfold.fold import Fold, Table
from rankfold.gate import Evidence, Gate, Policy, Verdict, evaluate, in_progress
from rankfold.ledger import Attempts, ConflictNote, Ledger
from rankfold.reading import newest_complete, range_totals, settled_series
from rankfold.rules import RuleSet
from rankfold_service import present

SHOWN_WORST = 10


class Pulse(Protocol):
    """What the clock is held against: a ledger, or what is remembered of one."""

    @property
    def finished(self) -> bool:
        """Whether the latest attempt is finished."""

    @property
    def last_report(self) -> float:
        """When the last report arrived, in seconds since the epoch."""


class Mark(NamedTuple):
    """What a snapshot was taken of: a ledger's version, under a state that time may change."""

    version: int
    state: answers.StateWord
    finished: bool
    last_report: float


class RunSnapshot(NamedTuple):
    """A run as the gauges show it, to be read before another report is taken.

    Attributes:
        project: the run's project.
        run: its name.
        rules: what the keys of its series are.
        bindings: what the rules of its scalars are.
        totals: every fold over all attempts.
        newest: the same for the newest complete iteration.
        iteration: the newest iteration reported.
        complete_iteration: the newest complete one.
        ranks_expected: how many ranks the latest attempt has.
        ranks_reporting: how many of them have reported.
        incomplete_iterations: how many iterations are not complete.
        last_report: in seconds since the epoch.
        finished: whether the latest attempt is.
        conflicts: over all attempts.
        gate: the live verdict.
    """

    project: str
    run: str
    rules: RuleSet
    bindings: Mapping[str, Binding]
    totals: Table
    newest: Table
    iteration: int | None
    complete_iteration: int | None
    ranks_expected: int
    ranks_reporting: int
    incomplete_iterations: int
    last_report: float
    finished: bool
    conflicts: int
    gate: Gate


@dataclass(frozen=True, slots=True)
class Ages:
    """When silence matters, in seconds since the last report.

    Attributes:
        stale: a run that is not finished is stale.
        leave_finished: a finished run leaves the gauges.
        leave_stale: a run that is not finished leaves them.
    """

    stale: float = 3600.0
    leave_finished: float = 3600.0
    leave_stale: float = 86400.0


class Judge:
    """Judges runs by the clock and the ages that the operator set.

    Args:
        ages: when silence matters.
        now: the wall clock, in seconds since the epoch.
    """

    def __init__(self, ages: Ages, now: Callable[[], float]) -> None:
        self._ages = ages
        self._now = now

    def silence(self, run: Pulse) -> float:
        """Return the seconds since anything was heard of a run."""
        return self._now() - run.last_report

    def state(self, run: Pulse) -> answers.StateWord:
        """Say whether a run goes on."""
        if run.finished:
            return "finished"
        return "stale" if self.silence(run) > self._ages.stale else "running"

    def running(self, run: Pulse) -> bool:
        """Whether a run is neither finished nor stale."""
        return self.state(run) == "running"

    def shown(self, run: Pulse) -> bool:
        """Whether the gauges still show a run."""
        ages = self._ages
        limit = ages.leave_finished if run.finished else ages.leave_stale
        return self.silence(run) <= limit

    def run(self, ledger: Ledger) -> answers.RunAnswer:
        """Describe a run as lists show it."""
        state = self.state(ledger)
        return {
            "project": ledger.project,
            "run": ledger.run,
            "state": state,
            "attempts": [present.attempt(a) for a in ledger.chosen("all")],
            "world_size": ledger.latest.launch.world_size,
            "last_iteration": present.last_iteration(ledger),
            "last_report": ledger.last_report,
            "gate": self._live(ledger, state)[0].gate.value,
        }

    def _evidence(
        self,
        ledger: Ledger,
        state: answers.StateWord,
        selection: Selection,
        policy: Policy,
        listed: int,
    ) -> Evidence:
        """Gather what a verdict needs: mismatches over the attempts asked for, by default all."""
        covered = coverage(ledger, selection, listed)
        waiting = in_progress(policy, covered, over=state != "running")
        return Evidence(
            series=_series(ledger, selection, waiting, exact=listed > 0),
            coverage=covered,
            conflicts=sum(a.conflicts for a in ledger.chosen(selection.attempts)),
            dropped=_dropped(ledger, selection.attempts),
            finished=state == "finished",
            stale=state == "stale",
            outside=_outside(ledger, selection),
        )

    def _live(self, ledger: Ledger, state: answers.StateWord) -> tuple[Verdict, Evidence]:
        policy = Policy(live=True)
        evidence = self._evidence(ledger, state, Selection(attempts="all"), policy, listed=0)
        return evaluate(policy, evidence), evidence

    def gate(self, ledger: Ledger, selection: Selection, policy: Policy) -> answers.GateAnswer:
        """Return the verdict on a run, and why."""
        state = self.state(ledger)
        evidence = self._evidence(ledger, state, selection, policy, LISTED)
        verdict = evaluate(policy, evidence)
        covered = evidence.coverage
        over = evidence.finished or evidence.stale
        waiting = in_progress(policy, covered, over=over)
        missing = [m for m in covered.missing if m.iteration not in waiting]
        silent = covered.silent if over or not policy.live else []
        return {
            "project": ledger.project,
            "run": ledger.run,
            "gate": verdict.gate.value,
            "state": state,
            "live": policy.live,
            "reasons": verdict.reasons,
            "series": {name: present.series_gate(fold) for name, fold in evidence.series.items()},
            "iterations": present.iterations_gate(covered, waiting),
            "ranks": {
                "expected": covered.expected,
                "expected_from": "world_size" if covered.expected_known else "reports",
                "reporting": covered.reporting,
                "missing": sorted({*silent, *(m.rank for m in missing)})[:LISTED],
            },
            "missing": [present.missing(m) for m in missing],
            "conflicts": evidence.conflicts,
            "conflict_details": [
                present.conflict(note) for note in _notes(ledger, selection.attempts)
            ],
            "dropped": evidence.dropped,
            "worst": list(islice(present.worst(evidence.series), SHOWN_WORST)),
        }

    def mark(self, ledger: Ledger) -> Mark:
        """Return what a snapshot of a run would be taken of."""
        return self.again(Mark(ledger.version, "running", ledger.finished, ledger.last_report))

    def again(self, mark: Mark) -> Mark:
        """Return the mark of a run that has not changed, but for what time changes."""
        return mark._replace(state=self.state(mark))

    def snapshot(self, ledger: Ledger, mark: Mark) -> RunSnapshot:
        """Return a run as the gauges show it.

        Args:
            ledger: of the run.
            mark: of it as it is now.
        """
        verdict, evidence = self._live(ledger, mark.state)
        newest = newest_complete(ledger)
        return RunSnapshot(
            project=ledger.project,
            run=ledger.run,
            rules=ledger.facts.rules,
            bindings=ledger.facts.bindings,
            totals=ledger.totals("all"),
            newest=newest.table if newest else Table(),
            iteration=present.last_iteration(ledger),
            complete_iteration=newest.iteration if newest else None,
            ranks_expected=evidence.coverage.expected,
            ranks_reporting=evidence.coverage.reporting,
            incomplete_iterations=len(evidence.coverage.incomplete),
            last_report=mark.last_report,
            finished=mark.finished,
            conflicts=ledger.conflicts,
            gate=verdict.gate,
        )


def _series(
    ledger: Ledger, selection: Selection, waiting: frozenset[int], *, exact: bool
) -> dict[str, Fold]:
    """Return the folds to judge: of the series asked for, or of all that were reported."""
    folds = (
        settled_series(ledger, selection, waiting, exact=exact)
        if waiting
        else range_totals(ledger, selection).series
    )
    # What was reported only in iterations that are still in progress has no say yet.
    known = sorted(name for name, fold in folds.items() if fold.partials)
    return {name: folds.get(name, Fold()) for name in selection.series or known}


def _outside(ledger: Ledger, selection: Selection) -> str:
    """Return that a run has no iteration where it is asked about, and where it ends or begins."""
    if selection.whole:
        return ""
    attempts = [a for a in ledger.chosen(selection.attempts) if a.last_iteration is not None]
    newest = max((a.last_iteration or 0 for a in attempts), default=None)
    oldest = min((a.launch.first_iteration or 0 for a in attempts), default=None)
    first, last = selection.first, selection.last
    if first is not None and newest is not None and first > newest:
        return f"no iteration was reported from {first} on, the newest is {newest}"
    if last is not None and oldest is not None and last < oldest:
        return f"no iteration was reported up to {last}, the oldest is {oldest}"
    return ""


def _dropped(ledger: Ledger, attempts: Attempts) -> int:
    """Return what ranks gave up in attempts that still count for coverage."""
    chosen = ledger.chosen(attempts)
    return sum(a.dropped for a in chosen if len(chosen) == 1 or not a.wholly_superseded)


def _notes(ledger: Ledger, attempts: Attempts) -> list[ConflictNote]:
    chosen = {a.number for a in ledger.chosen(attempts)}
    return sorted(note for note in ledger.notes if note.attempt in chosen)
