"""Ledgers without their pages as columns of numbers, for the tables that outlive the journal.

What every fold has is a column; what few have, and what has no fixed size, is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rankfold.attempt import Attempt, Reporter, Shelf
from rankfold.facts import Binding, Facts, Launch
from rankfold.fold import Table
from rankfold.iterations import Iterations
from rankfold.ledger import ConflictNote, Ledger
from rankfold.page import Conflict
from rankfold.rules import Rule, RuleSet
from rankfold.scope import Scope
from rankfold_service.store.columns import ColumnReader, anything, doubles, encode, integers
from rankfold_service.store.folds import (
    compressed,
    joined,
    pack_folds,
    pack_scalar_folds,
    reader,
    unpack_folds,
    unpack_scalar_folds,
)


def pack_ledger(ledger: Ledger) -> bytes:
    """Return a ledger without its pages as bytes."""
    attempts = list(ledger.attempts.values())
    heads = [{**_launch(a.number, a.launch), **_attempt(a)} for a in attempts]
    return compressed(anything([ledger.facts.bindings, ledger.notes, heads]), *_columns(attempts))


def unpack_ledger(data: bytes, project: str, run: str, rules: RuleSet, shelf: Shelf) -> Ledger:
    """Return the ledger that `pack_ledger` was given; its pages are on the shelf."""
    read = reader(data)
    bindings, notes, attempts = read.column()
    facts = Facts(rules, bindings=_bindings(bindings))
    facts.launches = {plain["number"]: unpack_launch(plain) for plain in attempts}
    facts.series = {series for plain in attempts for series in plain["seen"]}
    ledger = Ledger(project, run, facts, shelf=shelf)
    _fill(ledger, notes, attempts, read)
    for attempt in ledger.attempts.values():
        if attempt.launch.world_size is None:
            attempt.launch.highest_rank = max(attempt.reporters, default=-1)
    return ledger


def pack_book(ledger: Ledger) -> bytes:
    """Return the books of one rank, without its pages and without the facts, as bytes."""
    attempts = list(ledger.attempts.values())
    head = anything([ledger.notes, [_attempt(a) for a in attempts]])
    return joined(head, *_columns(attempts))


def unpack_book(data: bytes, ledger: Ledger) -> None:
    """Fill empty books of one rank with what `pack_book` was given."""
    read = reader(data)
    notes, attempts = read.column()
    _fill(ledger, notes, attempts, read)


def pack_facts(facts: Facts) -> bytes:
    """Return what is known of a run as a whole as bytes."""
    launches = [
        {**_launch(number, launch), "highest_rank": launch.highest_rank}
        for number, launch in facts.launches.items()
    ]
    return encode([launches, facts.bindings, sorted(facts.series)])


def unpack_facts(data: bytes, rules: RuleSet) -> Facts:
    """Return the facts that `pack_facts` was given."""
    launches, bindings, series = json.loads(data)
    facts = Facts(rules, bindings=_bindings(bindings), series=set(series))
    for plain in launches:
        launch = facts.launches[plain["number"]] = unpack_launch(plain)
        launch.highest_rank = plain["highest_rank"]
    return facts


def _bindings(plain: dict[str, Any]) -> dict[str, Binding]:
    return {key: Binding(Rule(rule), is_global) for key, (rule, is_global) in plain.items()}


_LAUNCH = ("first_report", "world_size", "meta", "finished", "first_iteration")


def _launch(number: int, launch: Launch) -> dict[str, Any]:
    return {"number": number, **{name: getattr(launch, name) for name in _LAUNCH}}


def unpack_launch(plain: dict[str, Any]) -> Launch:
    """Return what is known of an attempt as a whole, from what JSON holds of it."""
    return Launch(*(plain[name] for name in _LAUNCH))


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "conflicts": attempt.conflicts,
        "cut": attempt.cut,
        "remains": attempt.remaining is not None,
        "paged": attempt.paged.runs(),
        "covered": attempt.covered.runs(),
        "worked": attempt.worked.runs(),
        "seen": {series: seen.runs() for series, seen in attempt.seen.items()},
        "incomplete": Iterations(sorted(attempt.incomplete)).runs(),
        "last_commit": attempt.last_commit,
        "horizon": attempt.horizon,
    }


def _columns(attempts: Sequence[Attempt]) -> Iterator[bytes]:
    return (part for attempt in attempts for part in _attempt_columns(attempt))


def _attempt_columns(attempt: Attempt) -> Iterator[bytes]:
    reporters = attempt.reporters.values()
    yield integers([*attempt.reporters])
    yield doubles([r.last_report for r in reporters])
    yield integers([r.last_iteration for r in reporters])
    yield integers([r.dropped for r in reporters])
    yield from _scope(attempt.everything)
    if attempt.remaining is not None:
        yield from _scope(attempt.remaining)


def _fill(ledger: Ledger, notes: list[Any], attempts: list[Any], read: ColumnReader) -> None:
    ledger.notes = [ConflictNote(a, i, Conflict(*c), w) for a, i, c, w in notes]
    for plain in attempts:
        attempt = ledger.attempts[plain["number"]] = ledger.new_attempt(plain["number"])
        _fill_attempt(attempt, plain, read)


def _fill_attempt(attempt: Attempt, plain: dict[str, Any], read: ColumnReader) -> None:
    for name in ("conflicts", "cut", "last_commit", "horizon"):
        setattr(attempt, name, plain[name])
    ranks, *rest = (read.column() for _ in range(4))
    attempt.reporters = dict(zip(ranks, map(Reporter, *rest), strict=True))
    attempt.everything = _unscope(read)
    attempt.remaining = _unscope(read) if plain["remains"] else None
    attempt.paged = Iterations.of_runs(plain["paged"])
    attempt.covered = Iterations.of_runs(plain["covered"])
    attempt.worked = Iterations.of_runs(plain["worked"])
    attempt.seen = {series: Iterations.of_runs(seen) for series, seen in plain["seen"].items()}
    attempt.incomplete = set(Iterations.of_runs(plain["incomplete"]))


def _scope(scope: Scope) -> Iterator[bytes]:
    """Yield the folds over all ranks and of each rank, each kind in one go."""
    tables = [scope.table, *scope.ranks.values()]
    yield integers([*scope.ranks])
    yield anything([*scope.table.series])
    yield anything([*scope.table.scalars])
    yield anything(_places([t.series for t in tables], scope.table.series))
    yield anything(_places([t.scalars for t in tables], scope.table.scalars))
    yield from pack_folds([fold for table in tables for fold in table.series.values()])
    yield from pack_scalar_folds([fold for table in tables for fold in table.scalars.values()])


def _unscope(read: ColumnReader) -> Scope:
    scope = Scope()
    ranks, series, keys, in_series, in_keys = (read.column() for _ in range(5))
    folds, scalars = iter(unpack_folds(read)), iter(unpack_scalar_folds(read))
    tables = [Table() for _ in range(1 + len(ranks))]
    for table, has_series, has_keys in zip(tables, in_series, in_keys, strict=True):
        table.series = {series[i]: next(folds) for i in has_series}
        table.scalars = {keys[i]: next(scalars) for i in has_keys}
    scope.table, *rest = tables
    scope.ranks = dict(zip(ranks, rest, strict=True))
    return scope


def _places(tables: Sequence[dict[str, Any]], names: Iterable[str]) -> list[list[int]]:
    """Return, of each table, where its names stand among all names."""
    index = {name: i for i, name in enumerate(names)}
    return [[index[name] for name in table] for table in tables]
