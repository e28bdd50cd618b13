"""Hypothesis strategies for reports of a small world of attempts, ranks and iterations."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from rankfold.partial import Worst
from rankfold.rules import Rule
from rankfold.wire import Report
from unit.core.builders import OTHER, SERIES, partial, report, scalar

ATTEMPTS, RANKS, ITERATIONS = 3, 3, 5
SIZES = {0: 3, 1: None, 2: 4}
VALUES = (0.0, 5e-324, 2.0**-1022, 0.1, 1.0, 1e16, 1e300, 1.7e308)
RULES = {"loss": Rule.MEAN, "steps": Rule.LAST, "tokens": Rule.SUM}

Item = tuple[Any, ...]


def content(variant: int, *identity: Any) -> dict[str, Any]:
    """Return a partial's numbers, the same ones whenever the same identity is asked for."""
    chance = random.Random(repr((variant, identity)))
    valid = chance.choice((0, 1, 5, 2**53 - 1))
    count = min(valid, chance.choice((0, 1, 3)))
    nonfinite = min(count, chance.choice((0, 0, 1)))
    a, b = chance.choice((-1.0, float("nan"), -0.25)), chance.choice((-1.5, float("-inf")))
    optional = {
        "sum_sq": chance.choice(VALUES) if count else 0.0,
        "ulp_max": chance.choice((0, 1, 2**31)),
        "total": valid + chance.choice((0, 4)),
        "worst": Worst((0, chance.randrange(9)), a, b, chance.randrange(3), chance.randrange(99)),
    }
    return {
        "valid": valid,
        "count": count,
        "nonfinite": nonfinite,
        "max": None if valid == nonfinite else chance.choice(VALUES) if count else 0.0,
        "sum": chance.choice(VALUES) if count else 0.0,
        **{name: value for name, value in optional.items() if chance.random() < 0.5},
    }


def microbatches(attempt: int, rank: int, iteration: int) -> int:
    """Return how many microbatches a shard has: 0 to 3, always the same."""
    return random.Random(repr((attempt, rank, iteration))).randrange(4)


def one_report(attempt: int, rank: int, tell: bool, items: list[Item]) -> Report:
    """Return a report of these items: (kind, variant, iteration, microbatch, name)."""
    partials = [
        partial(i, m, series=name, **content(variant, attempt, rank, i, m, name))
        for kind, variant, i, m, name in items
        if kind == "partial"
    ]
    scalars = [
        scalar(name, i, m, rule=RULES[name], **_value(variant, attempt, rank, i, m, name))
        for kind, variant, i, m, name in items
        if kind == "scalar"
    ]
    commits = [(i, m) for kind, _, i, m, _ in items if kind == "commit"]
    size = SIZES[attempt] if tell else None
    return report(rank, partials, scalars, commits, attempt=attempt, world_size=size)


def _value(variant: int, attempt: int, rank: int, *identity: Any) -> dict[str, Any]:
    shared = identity[-1] == "tokens"
    chance = random.Random(repr((variant, attempt, None if shared else rank, identity)))
    value = chance.choice((*VALUES, -1.0, float("nan"), float("inf")))
    return {"value": value, "weight": chance.choice((0, 1, 512)), "is_global": shared}


def _items(*, contradictory: bool) -> st.SearchStrategy[Item]:
    names = st.sampled_from((SERIES, OTHER))
    keys = st.sampled_from(tuple(RULES))
    iterations = st.integers(0, ITERATIONS - 1)
    numbers = st.integers(0, 3)
    variants = st.integers(0, 1 if contradictory else 0)
    return st.one_of(
        st.tuples(st.just("partial"), variants, iterations, numbers, names),
        st.tuples(st.just("commit"), variants, iterations, numbers, names),
        st.tuples(st.just("scalar"), variants, iterations, numbers, keys),
    )


def _consistent(attempt: int, rank: int, items: list[Item]) -> list[Item]:
    """Keep the partials that the shard has, and make every commit the true one."""
    kept = []
    for kind, variant, iteration, number, name in items:
        limit = microbatches(attempt, rank, iteration)
        if kind == "commit":
            kept.append((kind, variant, iteration, limit, name))
        elif kind == "scalar" or number < limit:
            kept.append((kind, variant, iteration, number, name))
    return kept


Parts = tuple[int, int, bool, list[Item]]


def worlds(*, contradictory: bool = False) -> st.SearchStrategy[list[Parts]]:
    """Return lists of what `one_report` takes; contradictory ones hold conflicts too."""
    heads = st.tuples(st.integers(0, ATTEMPTS - 1), st.integers(0, RANKS - 1), st.booleans())
    items = st.lists(_items(contradictory=contradictory), max_size=12)
    parts = st.builds(
        lambda head, chosen: (
            *head,
            chosen if contradictory else _consistent(head[0], head[1], chosen),
        ),
        heads,
        items,
    )
    return st.lists(parts, min_size=1, max_size=12)


def rearranged(parts: list[Parts], chance: random.Random) -> list[Report]:
    """Return the same items in another order and batching, some of them several times."""
    singles: list[Parts] = [(a, r, tell, []) for a, r, tell, _ in parts]
    singles += [(a, r, tell, [item]) for a, r, tell, items in parts for item in items]
    singles += chance.choices(singles, k=chance.randrange(len(singles)))
    chance.shuffle(singles)
    batches: list[Parts] = []
    for a, r, tell, items in singles:
        if batches and batches[-1][:3] == (a, r, tell) and chance.random() < 0.7:
            batches[-1][3].extend(items)
        else:
            batches.append((a, r, tell, list(items)))
    return [one_report(*batch) for batch in batches]
