"""The algebra of folds: identity, commutativity, associativity, any order and any partition."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.fold import (
    KEPT_WORST,
    Fold,
    Moments,
    Place,
    ScalarFold,
    Table,
    WorstToken,
)
from rankfold.partial import PartialColumns, Worst
from unit.core.builders import dirty, partial, partial_columns, plain
from unit.core.worlds import VALUES, content

more = settings(max_examples=100, deadline=None)
names = st.sampled_from(("a", "b"))
places = st.builds(Place, st.integers(0, 3), st.integers(0, 3), st.integers(0, 2), st.just(0))


def fold_of(columns: PartialColumns, rank: int = 0, attempt: int = 0) -> Fold:
    """Return the fold of whole columns."""
    return Fold.of(columns.contents()).detailed(columns, rank, attempt)


def one(place: Place) -> Fold:
    """Return the fold of the one partial that this place always has."""
    row = partial(place.iteration, place.microbatch, **content(0, *place))
    return fold_of(partial_columns([row]), place.rank, place.attempt)


def one_scalar(place: Place) -> ScalarFold:
    """Return the fold of the one value that this place always has."""
    chance = random.Random(repr(place))
    value = chance.choice((*VALUES, -0.0, -1.0, math.nan, -math.inf))
    return ScalarFold.of(value, chance.choice((0, 1, 3, 2**53 - 1)), place)


folds = st.lists(places, unique=True, max_size=6).map(lambda found: merged(map(one, found)))
distinct = st.lists(places, unique=True, max_size=30)


def merged(parts: Any, start: Any = Fold()) -> Any:  # noqa: B008 - immutable
    """Return the fold of many."""
    for part in parts:
        start = start.merge(part)
    return start


def tabled(parts: list[tuple[str, Place]]) -> Table:
    """Return a table of a partial and a scalar for each place."""
    table = Table()
    for name, place in parts:
        table.add_series(name, one(place))
        table.add_scalar(name, one_scalar(place))
    return table


def pieces(items: list[Any], chance: random.Random) -> list[list[Any]]:
    """Return a random partition of the items in a random order."""
    shuffled = chance.sample(items, len(items))
    cuts = sorted(chance.choices(range(len(items) + 1), k=3))
    return [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(items)], strict=True)]


@more
@given(distinct)
def test_fold_has_an_identity(found: list[Place]) -> None:
    """Merging with the empty fold changes no bit, from either side."""
    fold, scalars = merged(map(one, found)), merged(map(one_scalar, found), ScalarFold())
    assert plain(fold.merge(Fold())) == plain(Fold().merge(fold)) == plain(fold)
    assert plain(scalars.merge(ScalarFold())) == plain(scalars)
    assert plain(ScalarFold().merge(scalars)) == plain(scalars)


@more
@given(distinct, st.randoms(use_true_random=False))
def test_fold_merges_in_any_order_and_grouping(found: list[Place], chance: random.Random) -> None:
    """Any partition of the parts, in any order, merged in any order, gives the same bits."""
    split = pieces(found, chance)
    for single, start in ((one, Fold()), (one_scalar, ScalarFold())):
        grouped = merged([merged(map(single, part), start) for part in split], start)
        assert plain(grouped) == plain(merged(map(single, found), start))


@more
@given(places, places, places)
def test_fold_merge_is_commutative_and_associative(a: Place, b: Place, c: Place) -> None:
    """Two may be swapped, and three may be bracketed either way."""
    b = b._replace(attempt=1)
    c = c._replace(attempt=2)
    for single in (one, one_scalar):
        x, y, z = single(a), single(b), single(c)
        assert plain(x.merge(y)) == plain(y.merge(x))
        assert plain(x.merge(y).merge(z)) == plain(x.merge(y.merge(z)))


@more
@given(distinct)
def test_fold_of_rows_is_the_merge_of_each(found: list[Place]) -> None:
    """Folding a batch at once gives what folding its rows one by one gives."""
    own = [place._replace(rank=1) for place in dict.fromkeys(p._replace(rank=1) for p in found)]
    rows = [partial(p.iteration, p.microbatch, **content(0, *p)) for p in own]
    batch = fold_of(partial_columns(rows), 1, 0)
    assert plain(batch) == plain(merged(map(one, own)))


@more
@given(st.lists(st.tuples(names, places), unique=True, max_size=20), st.randoms())
def test_table_unites_in_any_order_and_grouping(
    parts: list[tuple[str, Place]], chance: random.Random
) -> None:
    """Any partition of a table's parts unites to the same table; the empty one adds nothing."""
    whole = tabled(parts)
    assert plain(Table.union(map(tabled, pieces(parts, chance)))) == plain(whole)
    assert plain(Table.union([whole, Table()])) == plain(Table.union([Table(), whole]))
    assert plain(Table.union([whole])) == plain(whole)


def test_table_union_leaves_its_parts_alone() -> None:
    """The union is a new table."""
    first, second = tabled([("a", Place(0, 0, 0, 0))]), tabled([("a", Place(1, 0, 0, 0))])
    before = plain([first, second])
    Table.union([first, second])
    assert plain([first, second]) == before


def test_fold_of_a_row_holds_its_numbers() -> None:
    """Every field of a partial goes where it belongs."""
    worst = Worst((1, 2), -1.0, -1.5, 3)
    row = dirty(4, 2, nonfinite=0, sum_sq=0.25, ulp_max=7, total=9, worst=worst)
    columns = partial_columns([partial(), row])
    assert fold_of(columns.at([1]), 5, 6) == Fold(
        partials=1,
        valid=8,
        count=1,
        nonfinite=0,
        sum=1 << 1073,
        max=0.5,
        min=0.5,
        moments=Moments(8, 1 << 1073, 1 << 1072),
        ulp_max=7,
        total=9,
        worst=(WorstToken.of(Place(4, 2, 5, 6), worst),),
    )
    assert fold_of(columns.at([0]), 5, 6) == Fold(1, 8, 0, 0, 0, 0.0, 0.0)


def test_fold_divides_by_its_finite_positions() -> None:
    """Positions whose difference is not finite are left out of the mean's denominator."""
    assert Fold(valid=8, nonfinite=3).finite == 5


def test_fold_has_one_zero() -> None:
    """A negative zero reads as zero, whichever came first."""
    for first, second in ((0.0, -0.0), (-0.0, 0.0), (-0.0, -0.0)):
        rows = partial_columns([partial(0, 0, max=first), partial(0, 1, max=second)])
        whole = fold_of(rows)
        halves = fold_of(rows.at([0])).merge(fold_of(rows.at([1])))
        assert plain(whole) == plain(halves)
        assert plain([whole.max, whole.min]) == plain([0.0, 0.0])
        scalars = [ScalarFold.of(v, 1, Place(0, i, 0, 0)) for i, v in enumerate((first, second))]
        assert plain(merged(scalars, ScalarFold())[5:7]) == plain([0.0, 0.0])


def test_scalar_fold_keeps_out_what_is_not_finite() -> None:
    """NaN and infinities are counted and change nothing else."""
    place = Place(0, 0, 0, 0)
    for value in (math.nan, math.inf, -math.inf):
        assert ScalarFold.of(value, 3, place) == ScalarFold(nonfinite=1)


def test_scalar_fold_last_is_the_latest_place() -> None:
    """The latest is decided by iteration, then microbatch, then rank, then attempt."""
    order = [
        Place(0, 9, 9, 9),
        Place(1, 0, 9, 9),
        Place(1, 1, 0, 9),
        Place(1, 1, 1, 0),
        Place(1, 1, 1, 1),
    ]
    for earlier, later in pairwise(order):
        a, b = ScalarFold.of(9.0, 1, earlier), ScalarFold.of(-9.0, 1, later)
        assert a.merge(b).last == b.merge(a).last == (later, -9.0)


def test_worst_tokens_are_the_largest_first() -> None:
    """Non-finite before finite, then by difference, by ulp, by place; sixteen are kept."""
    ranked = [
        WorstToken.of(Place(9, 0, 0, 0), Worst((0, 0), math.nan, -1.0, 0)),
        WorstToken.of(Place(9, 1, 0, 0), Worst((0, 0), -1.0, -math.inf, 0)),
        WorstToken.of(Place(8, 0, 0, 0), Worst((0, 0), -1.0, -2.0, 1)),
        WorstToken.of(Place(7, 0, 0, 0), Worst((0, 0), -1.0, -1.5, 9)),
        WorstToken.of(Place(5, 0, 0, 0), Worst((0, 0), -1.0, -1.5, 8)),
        *(WorstToken.of(Place(6, i, 0, 0), Worst((0, 0), -1.0, -1.5, 8)) for i in range(20)),
    ]
    singles = [Fold(partials=1, worst=(token,)) for token in reversed(ranked)]
    assert merged(singles).worst == tuple(ranked[:KEPT_WORST])


def test_least_is_the_distance_of_the_last_that_is_kept() -> None:
    """Nothing is ruled out before sixteen are kept, nor by one that is not finite."""

    def kept(count: int, b: float) -> Fold:
        tokens = (WorstToken.of(Place(0, i, 0, 0), Worst((0, 0), -1.0, b, 1)) for i in range(count))
        return Fold(partials=count, worst=tuple(tokens))

    assert kept(KEPT_WORST - 1, -1.5).least == 0.0
    assert kept(KEPT_WORST, -1.5).least == 0.5
    assert kept(KEPT_WORST, -math.inf).least == math.inf
