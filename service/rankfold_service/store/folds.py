"""Folds as columns of numbers, and what columns are joined into."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from rankfold.fold import Fold, Moments, Place, ScalarFold, WorstToken
from rankfold_service.store.columns import ColumnReader, anything, doubles, exact, integers
from rankfold_service.store.record import pack_worst, unpack_worst

_PLAIN = b"\0"  # compressed data begins with an x


def pack_folds(folds: Sequence[Fold]) -> list[bytes]:
    """Return folds as columns; the optional fields, which few have, by index."""
    columns: list[Sequence[Any]] = [*zip(*folds, strict=True)] if folds else [()] * 11
    sums, maxima, minima, moments, ulp_max, total, worst = columns[4:]
    extra = [[i, m.positions, m.sum, m.sum_sq] for i, m in enumerate(moments) if m]
    found, positions, sum_, sum_sq = zip(*extra, strict=True) if extra else [()] * 4
    tokens = [[i, pack_tokens(w)] for i, w in enumerate(worst) if w]
    return [
        *map(integers, columns[:4]),
        exact(sums),
        doubles(maxima),
        doubles(minima),
        integers(found),
        integers(positions),
        exact(sum_),
        exact(sum_sq),
        integers(ulp_max),
        integers(total),
        anything(tokens),
    ]


def unpack_folds(read: ColumnReader) -> list[Fold]:
    """Return what `pack_folds` was given."""
    partials, valid, count, nonfinite = (read.column() for _ in range(4))
    sums, maxima, minima = read.exact(), read.column(), read.column()
    moments: list[Moments | None] = [None] * len(partials)
    found, positions = read.column(), read.column()
    for index, *of_it in zip(found, positions, read.exact(), read.exact(), strict=True):
        moments[index] = Moments(*of_it)
    ulp_max, total = read.column(), read.column()
    worst: list[tuple[WorstToken, ...]] = [()] * len(partials)
    for index, tokens in read.column():
        worst[index] = unpack_tokens(tokens)
    columns = (partials, valid, count, nonfinite, sums, maxima, minima, moments)
    return [*map(Fold, *columns, ulp_max, total, worst)]


def pack_tokens(worst: Iterable[WorstToken]) -> list[Any]:
    """Return worst tokens with their places as what JSON holds."""
    return [[token.place, pack_worst(token.worst)] for token in worst]


def unpack_tokens(plain: Iterable[Any]) -> tuple[WorstToken, ...]:
    """Return what `pack_tokens` was given."""
    return tuple(WorstToken.of(Place(*place), unpack_worst(worst)) for place, worst in plain)


def pack_scalar_folds(folds: Sequence[ScalarFold]) -> list[bytes]:
    """Return folds of scalars as columns."""
    columns: list[Sequence[Any]] = [*zip(*folds, strict=True)] if folds else [()] * 8
    values, nonfinite, weight, sums, weighted, maxima, minima, last = columns
    return [
        *map(integers, (values, nonfinite, weight)),
        exact(sums),
        exact(weighted),
        doubles(maxima),
        doubles(minima),
        anything(last),
    ]


def unpack_scalar_folds(read: ColumnReader) -> list[ScalarFold]:
    """Return what `pack_scalar_folds` was given."""
    values, nonfinite, weight = (read.column() for _ in range(3))
    sums, weighted = read.exact(), read.exact()
    maxima, minima = read.column(), read.column()
    last = [pair and (Place(*pair[0]), pair[1]) for pair in read.column()]
    return [*map(ScalarFold, values, nonfinite, weight, sums, weighted, maxima, minima, last)]


def compressed(*parts: bytes) -> bytes:
    """Join columns into what `reader` takes, in little space."""
    return zlib.compress(b"".join(parts), 1)


def joined(*parts: bytes) -> bytes:
    """Join columns into what `reader` takes, in little time."""
    data = b"".join(parts)
    return _PLAIN + zlib.crc32(data).to_bytes(4, "little") + data


def reader(data: bytes) -> ColumnReader:
    """Return the columns that were joined.

    Raises:
        ValueError: the bytes are not what was written.
        zlib.error: likewise.
    """
    if not data.startswith(_PLAIN):
        return ColumnReader(zlib.decompress(data))
    checksum, columns = data[1:5], data[5:]
    if zlib.crc32(columns).to_bytes(4, "little") != checksum:
        raise ValueError("the checksum does not fit")
    return ColumnReader(columns)
