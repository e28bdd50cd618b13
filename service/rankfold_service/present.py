"""The values of the core as the plain objects that the API answers with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from rankfold import answers
from rankfold.attempt import Attempt
from rankfold.coverage import LISTED, Coverage, Missing
from rankfold.exact import from_units
from rankfold.facts import Binding
from rankfold.fold import Fold, ScalarFold, Table, WorstToken
from rankfold.ledger import ConflictNote, Ledger
from rankfold.page import GLOBAL
from rankfold.partial import number_to_json
from rankfold.rules import Key, Reading, Rule, RuleSet, extras, read_series, scalar_reading


class Rulebook(Protocol):
    """Says how the folds of a run are read: its ledger, or a snapshot of it."""

    @property
    def rules(self) -> RuleSet:
        """Which keys a series has."""

    @property
    def bindings(self) -> Mapping[str, Binding]:
        """By which rule each scalar is folded."""


class Shape(NamedTuple):
    """What decides which keys a table has: its series, and how they and its scalars are read."""

    series: tuple[str, ...]
    of_series: tuple[tuple[Reading, ...], ...]
    scalars: tuple[Reading, ...]


def shape(run: Rulebook, table: Table) -> Shape:
    """Return what decides which keys a table has."""
    series, rules, bindings = sorted(table.series), run.rules.readings, run.bindings
    return Shape(
        tuple(series),
        tuple([rules(name, extras(table.series[name])) for name in series]),
        tuple([scalar_reading(key, bindings[key].rule) for key in sorted(table.scalars)]),
    )


def readings(of: Shape) -> Iterable[Reading]:
    """Return how every key is read: of the series first, then the scalars.

    Of two of one name there is one: that of a series, and of the later one.
    """
    found = {reading.name: reading for of_one in of.of_series for reading in of_one}
    for reading in of.scalars:
        found.setdefault(reading.name, reading)
    return found.values()


def keys(run: Rulebook, table: Table) -> list[Key]:
    """Return every key of a table."""
    return [reading.key(table) for reading in readings(shape(run, table))]


def _json(value: float | int | None) -> answers.Value:
    return number_to_json(value) if isinstance(value, float) else value


def values(keys: Iterable[Key], wanted: tuple[str, ...]) -> dict[str, answers.Value]:
    """Return the values of the wanted keys, or of all where none is named."""
    return {key.name: _json(key.value) for key in keys if not wanted or key.name in wanted}


def key_answer(key: Key) -> answers.KeyAnswer:
    """Return a key's value and what it was folded from."""
    fold = key.fold
    shown: answers.KeyAnswer = {
        "value": _json(key.value),
        "rule": key.rule.value,
        "series": key.series,
        "count": fold.values if isinstance(fold, ScalarFold) else fold.count,
        "valid": None if isinstance(fold, ScalarFold) else fold.valid,
        "nonfinite": fold.nonfinite,
        "sum": _json(from_units(_sum(fold, key.rule))) if fold.max is not None else None,
        "max": fold.max,
    }
    if isinstance(fold, ScalarFold):
        shown["weight"] = fold.weight
    return shown


def _sum(fold: Fold | ScalarFold, rule: Rule) -> int:
    """Return the exact sum that a key's value came from: a mean's is weighted."""
    return fold.weighted if isinstance(fold, ScalarFold) and rule is Rule.MEAN else fold.sum


def attempt(attempt: Attempt) -> answers.AttemptAnswer:
    """Describe one launch of a run."""
    return {
        "attempt": attempt.number,
        "world_size": attempt.launch.world_size,
        "finished": attempt.launch.finished,
        "first_report": attempt.launch.first_report,
        "last_report": attempt.last_report,
        "first_iteration": attempt.launch.first_iteration,
        "last_iteration": attempt.last_iteration,
        "superseded_from": attempt.cut,
        "reporting": len(attempt.reporters),
        "dropped": attempt.dropped,
        "conflicts": attempt.conflicts,
        "meta": attempt.launch.meta,
    }


def last_iteration(ledger: Ledger) -> int | None:
    """Return the highest iteration that any attempt reported."""
    reached = [a.last_iteration for a in ledger.attempts.values()]
    return max((i for i in reached if i is not None), default=None)


def selected(table: Table, series: tuple[str, ...]) -> dict[str, Fold]:
    """Return the folds of the named series, or of all where none is named."""
    return {name: fold for name, fold in table.series.items() if not series or name in series}


def worst(folds: Mapping[str, Fold]) -> Iterator[answers.WorstAnswer]:
    """Yield the worst tokens of several series, largest first."""
    tokens = [(token, name) for name, fold in folds.items() for token in fold.worst]
    for token, name in sorted(tokens, key=lambda pair: (*pair[0][:3], pair[1])):
        yield _worst(token, name)


def _worst(token: WorstToken, series: str) -> answers.WorstAnswer:
    place, worst = token.place, token.worst
    shown: answers.WorstAnswer = {
        "series": series,
        "attempt": place.attempt,
        "rank": place.rank,
        "iteration": place.iteration,
        "microbatch": place.microbatch,
        "position": list(worst.position),
        "a": number_to_json(worst.a),
        "b": number_to_json(worst.b),
        "ulp": worst.ulp,
    }
    if worst.token_id is not None:
        shown["token_id"] = worst.token_id
    if worst.sample is not None:
        shown["sample"] = worst.sample
    return shown


def series_gate(fold: Fold) -> answers.SeriesGate:
    """Return one series' figures for a verdict."""
    return {
        "mismatch_count": fold.count,
        "nonfinite_count": fold.nonfinite,
        "valid_count": fold.valid,
        "diff_max": fold.max,
        "diff_mean": read_series(fold, Rule.MEAN, "sum"),
    }


def iterations_gate(covered: Coverage, waiting: frozenset[int]) -> answers.IterationsGate:
    """Return the iterations of a verdict; those in `waiting` are in progress."""
    late = [i for i in covered.incomplete if i not in waiting]
    return {
        "first": covered.first,
        "last": covered.last,
        "complete": covered.complete,
        "incomplete": late[:LISTED],
        "incomplete_count": len(late),
        "absent": covered.absent[:LISTED],
        "absent_count": len(covered.absent),
        "in_progress": sorted(waiting)[:LISTED],
    }


def missing(missing: Missing) -> answers.MissingAnswer:
    """Return what a rank owes."""
    return {
        "iteration": missing.iteration,
        "attempt": missing.attempt,
        "rank": missing.rank,
        "series": missing.series,
        "microbatches": list(missing.microbatches),
    }


def conflict(note: ConflictNote) -> answers.ConflictAnswer:
    """Return a conflict in words."""
    rank = note.conflict.rank
    return {
        "attempt": note.attempt,
        "iteration": note.iteration,
        "rank": None if rank == GLOBAL else rank,
        "kind": note.conflict.kind,
        "name": note.conflict.name,
        "reason": note.reason,
    }
