"""A page as bytes, its contents apart from its folds, because they are dropped on their own."""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from rankfold.fold import Fold, Moments, Place, ScalarFold
from rankfold.iterations import Iterations
from rankfold.microbatches import Microbatches
from rankfold.page import Cell, Conflict, Page
from rankfold.rules import Rule
from rankfold_service.store.columns import WIDEST, encode, pack_as, split, unpack_as
from rankfold_service.store.folds import pack_tokens, unpack_tokens

_CHECKSUM = struct.Struct("<I")
# Rows of partials, and the bytes of what JSON holds before them.
_SIZES = struct.Struct("<II")

Cells = Iterable[tuple[int, Cell[Any]]]


def pack_apart(page: Page) -> tuple[bytes, bytes]:
    """Return a page as bytes without its contents, and those as bytes, empty where none is kept."""
    folded = [
        [*page.commits.items()],
        [
            [s, [[r, _known(c), _fold(c.fold)] for r, c in of.items()]]
            for s, of in page.series.items()
        ],
        [
            [k, [[r, _known(c), _scalar_fold(c.fold)] for r, c in of.items()]]
            for k, of in page.scalars.items()
        ],
        sorted(page.conflicts),
        [[s, pack_tokens(f.worst)] for s, f in page.table.series.items() if f.worst],
    ]
    return _checked(encode(folded)), _contents(page)


def unpack_apart(folded: bytes, contents: bytes) -> Page:
    """Return the page that `pack_apart` was given; without contents where they were dropped.

    Raises:
        ValueError: the bytes are not what was written.
    """
    page = Page()
    commits, series, scalars, conflicts, worst = json.loads(_unchecked(folded))
    page.commits = dict(commits)
    page.series = {s: {r: _cell(_unfold(f), known) for r, known, f in of} for s, of in series}
    page.scalars = {k: {r: _cell(_unscalar(f), known) for r, known, f in of} for k, of in scalars}
    page.conflicts = {Conflict(*conflict) for conflict in conflicts}
    page.table.series = {s: Fold(worst=unpack_tokens(tokens)) for s, tokens in worst}
    page.recount()
    if contents:
        _fill(page, _unchecked(contents))
    return page


def _contents(page: Page) -> bytes:
    crowded = any(cell.contents for of in (page.series, page.scalars) for cell in _cells(of))
    if not crowded:
        return b""
    rows = [*chain.from_iterable(cell.contents for cell in _cells(page.series))]
    columns: list[Sequence[Any]] = [*zip(*rows, strict=True)] if rows else [()] * 6
    head = encode(
        [
            [len(cell.contents) for cell in _cells(page.series)],
            [cell.contents for cell in _cells(page.scalars)],
        ]
    )
    maxima = [math.nan if value is None else value for value in columns[4]]
    parts = (
        _SIZES.pack(len(rows), len(head)),
        head,
        pack_as(WIDEST, [*chain(*columns[:4])]),
        pack_as("d", [*maxima, *columns[5]]),
    )
    return _checked(b"".join(parts))


def _fill(page: Page, data: bytes) -> None:
    """Give the cells of a page their contents."""
    rows, size = _SIZES.unpack_from(data)
    start = _SIZES.size + size
    counts, scalars = json.loads(data[_SIZES.size : start])
    whole = unpack_as(WIDEST, 4 * rows, data, start)
    real = unpack_as("d", 2 * rows, data, start + 8 * len(whole))
    maxima = [None if math.isnan(value) else value for value in real[:rows]]
    columns = [whole[at : at + rows] for at in range(0, 4 * rows, max(rows, 1))]
    partials = zip(*columns, maxima, real[rows:], strict=True) if rows else iter(())
    for cell, count in zip(_cells(page.series), counts, strict=True):
        cell.contents = [*islice(partials, count)]
    for scalar, values in zip(_cells(page.scalars), scalars, strict=True):
        scalar.contents = [(m, float(v), weight, Rule(rule)) for m, v, weight, rule in values]


def _cells(of: dict[str, dict[int, Any]]) -> Iterator[Cell[Any]]:
    return (cell for ranks in of.values() for cell in ranks.values())


def _known(cell: Cell[Any]) -> Any:
    """Return the microbatches of a cell: their number where they are those from 0 on."""
    known = cell.known
    return len(known) if known.highest < len(known) else Iterations(known).runs()


def _cell(fold: Any, known: Any) -> Cell[Any]:
    cell: Cell[Any] = Cell(fold)
    runs = known if isinstance(known, list) else None
    cell.known = (
        Microbatches.first(known) if runs is None else Microbatches(Iterations.of_runs(runs))
    )
    return cell


def _sum(exact: Sequence[int]) -> int:
    return exact[0] << exact[1]


def _fold(fold: Fold) -> list[Any]:
    moments = fold.moments
    extra = moments and (moments.positions, split(moments.sum), split(moments.sum_sq))
    plain = [*fold[:4], split(fold.sum), fold.max, fold.min, extra, fold.ulp_max, fold.total]
    return [*plain, pack_tokens(fold.worst)] if fold.worst else plain


def _unfold(plain: list[Any]) -> Fold:
    partials, valid, count, nonfinite, sum_, max_, min_, extra, ulp_max, total, *worst = plain
    moments = extra and Moments(extra[0], _sum(extra[1]), _sum(extra[2]))
    tokens = unpack_tokens(*worst) if worst else ()
    return Fold(
        *(
            partials,
            valid,
            count,
            nonfinite,
            _sum(sum_),
            max_,
            min_,
            moments,
            ulp_max,
            total,
            tokens,
        )
    )


def _scalar_fold(fold: ScalarFold) -> list[Any]:
    return [*fold[:3], split(fold.sum), split(fold.weighted), *fold[5:]]


def _unscalar(plain: list[Any]) -> ScalarFold:
    values, nonfinite, weight, sum_, weighted, max_, min_, last = plain
    newest = last and (Place(*last[0]), last[1])
    return ScalarFold(values, nonfinite, weight, _sum(sum_), _sum(weighted), max_, min_, newest)


def _checked(data: bytes) -> bytes:
    return _CHECKSUM.pack(zlib.crc32(data)) + data


def _unchecked(data: bytes) -> bytes:
    body = data[_CHECKSUM.size :]
    if _CHECKSUM.unpack_from(data)[0] != zlib.crc32(body):
        raise ValueError("the checksum does not fit")
    return body
