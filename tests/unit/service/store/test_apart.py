"""Pages whose contents are apart come back equal, with or without those, and damage is found."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.errors import StoreUnavailable
from rankfold.page import Page
from rankfold.partial import Worst
from rankfold.rules import Rule
from rankfold_service.store.apart import pack_apart, unpack_apart
from rankfold_service.store.shelf import undamaged
from unit.core.builders import ledger_of, partial, plain, report, scalar
from unit.core.worlds import Parts, one_report, worlds


def pages_of(parts: list[Parts]) -> list[Page]:
    """Return every page that a ledger has of a world."""
    ledger = ledger_of(*(one_report(*part) for part in parts))
    return [a.page(iteration) for a in ledger.attempts.values() for iteration in a.paged]


def picture_of(page: Page) -> object:
    """Return all that a page holds and derives, plain."""
    cells = [
        (name, rank, list(cell.known), cell.contents, cell.fold)
        for kind in (page.series, page.scalars)
        for name, ranks in kind.items()
        for rank, cell in ranks.items()
    ]
    held = page.commits, cells, page.conflicts, page.table
    return plain(held), page.worked, page.complete(3), page.speakers()


def test_page_that_is_empty_comes_back() -> None:
    """What has only been opened is a page too."""
    assert picture_of(unpack_apart(*pack_apart(Page()))) == picture_of(Page())


@settings(max_examples=60)
@given(worlds(contradictory=True))
def test_page_comes_back_to_the_bit(parts: list[Parts]) -> None:
    """Whatever was reported of an iteration: conflicts, moments, worst tokens, odd numbers."""
    for page in pages_of(parts):
        assert picture_of(unpack_apart(*pack_apart(page))) == picture_of(page)


@settings(max_examples=30)
@given(worlds(contradictory=True))
def test_page_without_its_contents_has_the_same_folds(parts: list[Parts]) -> None:
    """Contents are dropped without anybody reading the rest."""
    for page in pages_of(parts):
        found = unpack_apart(pack_apart(page)[0], b"")
        cells = [
            cell for of in (found.series, found.scalars) for c in of.values() for cell in c.values()
        ]
        assert not any(cell.contents for cell in cells)
        for kind in (page.series, page.scalars):
            for ranks in kind.values():
                for cell in ranks.values():
                    cell.contents = []
        assert picture_of(found) == picture_of(page)


def test_page_keeps_what_numbers_cannot_say_in_json() -> None:
    """NaN and infinities stay what they are, no largest difference stays none, zero has a sign."""
    worst = Worst((3, 4), math.nan, -math.inf, 2**40, 7, "sample \u2028")
    rows = [
        partial(0, 1, count=2, valid=2, nonfinite=2, max=None, worst=worst),
        partial(0, 7, count=1, max=5e-324, sum=5e-324, sum_sq=1e300, ulp_max=0, total=2**53 - 1),
    ]
    values = [math.nan, math.inf, -math.inf, -0.0, 1.7e308]
    scalars = [scalar("s", 0, m, value=v, weight=m, rule=Rule.LAST) for m, v in enumerate(values)]
    page = ledger_of(report(0, rows, scalars)).attempts[0].page(0)
    found = unpack_apart(*pack_apart(page))
    assert picture_of(found) == picture_of(page)
    (cell,) = found.series[rows[0]["series"]].values()
    assert [content[4] for content in cell.contents] == [None, 5e-324]
    assert found.table.series[rows[0]["series"]].worst[0].worst.sample == "sample \u2028"


PAGE = pack_apart(
    ledger_of(report(0, [partial(0, 0), partial(0, 2)], [scalar()], [(0, 3)])).attempts[0].page(0)
)


@given(st.data(), st.sampled_from((0, 1)))
def test_page_with_a_flipped_bit_is_refused(data: st.DataObject, part: int) -> None:
    """No single flipped bit is believed, in neither part."""
    packed = [bytearray(each) for each in PAGE]
    position = data.draw(st.integers(0, len(packed[part]) - 1))
    packed[part][position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(StoreUnavailable, match="is damaged"), undamaged("a page"):
        unpack_apart(*map(bytes, packed))


@given(st.data(), st.sampled_from((0, 1)))
def test_page_that_is_cut_off_is_refused(data: st.DataObject, part: int) -> None:
    """A part of a part is damage; contents that are not there at all were folded away."""
    packed = list(PAGE)
    packed[part] = packed[part][: data.draw(st.integers(part, len(packed[part]) - 1))]
    with pytest.raises(StoreUnavailable, match="is damaged"), undamaged("a page"):
        unpack_apart(*packed)
