"""One journal record: a report, a finish or a delete as bytes, exact to the bit.

Numbers are columns of 64-bit integers and doubles; what has no fixed size is a JSON header.
Each record carries its length and a CRC-32, so that damage is found before it is believed.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, cast

from rankfold.partial import PartialColumns, Worst
from rankfold.rules import Rule
from rankfold.wire import Commit, Report, ScalarColumns
from rankfold_service.store.columns import encode, little_endian

_FRAME = struct.Struct("<II")
_SIZES = struct.Struct("<III")
_PARTIAL_INTEGERS = ("iteration", "microbatch", "count", "valid", "nonfinite")
_OPTIONAL_INTEGERS = ("ulp_max", "total")
_NULL_INTEGER = -1  # counts are never negative, and doubles in these columns never NaN


@dataclass(frozen=True, slots=True)
class Entry:
    """What happened to a run, to be replayed in order.

    Attributes:
        op: `report`, or what was asked for the run.
        now: when it arrived, in seconds since the epoch.
        keep: of how many iterations the contents stayed known then.
        report: the report; for the other two only its project, run and attempt count.
    """

    op: Literal["report", "finish", "delete"]
    now: float
    keep: int
    report: Report


class DamagedRecord(Exception):
    """The bytes are not what was written."""


def pack(entry: Entry) -> bytes:
    """Return an entry as one framed record."""
    report = entry.report
    partials, scalars = report.partials, report.scalars
    names = list(dict.fromkeys(chain(partials.series, scalars.key)))
    index = {name: i for i, name in enumerate(names)}
    optional = [f for f in _OPTIONAL_INTEGERS if getattr(partials, f) is not None]
    header = {
        "op": entry.op,
        "now": entry.now,
        "keep": entry.keep,
        "project": report.project,
        "run": report.run,
        "attempt": report.attempt,
        "rank": report.rank,
        "world_size": report.world_size,
        "commits": [[c.iteration, c.microbatches] for c in report.commits],
        "meta": report.meta,
        "dropped": report.dropped,
        "names": names,
        "optional": optional,
        "sum_sq": partials.sum_sq is not None,
        "worst": _pack_worst(partials.worst),
        "rules": scalars.rule,
        "global": scalars.is_global,
    }
    # What is empty or false is what a reader takes it for: it is left out.
    text = encode({name: value for name, value in header.items() if value})
    parts = [_SIZES.pack(len(text), len(partials), len(scalars)), text]
    if len(partials):
        parts += (
            _numbers("q", [index[name] for name in partials.series]),
            *(_numbers("q", getattr(partials, field)) for field in _PARTIAL_INTEGERS),
            *(_numbers("q", _filled(getattr(partials, f))) for f in optional),
            _numbers("d", _with_nan(partials.max)),
            _numbers("d", partials.sum),
            _numbers("d", _with_nan(partials.sum_sq)) if partials.sum_sq is not None else b"",
        )
    if len(scalars):
        parts += (
            _numbers("q", [index[key] for key in scalars.key]),
            _numbers("q", scalars.iteration),
            _numbers("q", scalars.microbatch),
            _numbers("q", scalars.weight),
            _numbers("d", scalars.value),
        )
    body = b"".join(parts)
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def unpack_all(records: bytes) -> Iterator[Entry]:
    """Yield the entries of records that were joined.

    Raises:
        DamagedRecord: a length or a checksum does not fit.
    """
    at = 0
    while at < len(records):
        if at + _FRAME.size > len(records):
            raise DamagedRecord("a record's frame is cut off")
        length, checksum = _FRAME.unpack_from(records, at)
        at += _FRAME.size
        body = records[at : at + length]
        if len(body) != length or zlib.crc32(body) != checksum:
            raise DamagedRecord("a record's checksum does not fit")
        at += length
        yield _unpack(body)


def _unpack(body: bytes) -> Entry:
    header_size, partial_count, scalar_count = _SIZES.unpack_from(body)
    start = _SIZES.size + header_size
    header = json.loads(body[_SIZES.size : start])
    read = _ColumnReader(memoryview(body)[start:])
    partials = _unpack_partials(header, read, partial_count)
    scalars = _unpack_scalars(header, read, scalar_count)
    report = Report(
        run=header["run"],
        rank=header.get("rank", 0),
        project=header["project"],
        attempt=header.get("attempt", 0),
        world_size=header.get("world_size"),
        partials=partials,
        scalars=scalars,
        commits=[Commit(*pair) for pair in header.get("commits", ())],
        meta=header.get("meta", {}),
        dropped=header.get("dropped", 0),
    )
    return Entry(header["op"], header.get("now", 0.0), header.get("keep", 0), report)


def _unpack_partials(header: dict[str, Any], read: _ColumnReader, count: int) -> PartialColumns:
    names = header.get("names", ())
    columns = PartialColumns(series=[names[i] for i in read.integers(count)])
    for field in _PARTIAL_INTEGERS:
        setattr(columns, field, read.integers(count))
    for field in header.get("optional", ()):
        values = read.integers(count)
        setattr(columns, field, [None if v == _NULL_INTEGER else v for v in values])
    columns.max = _without_nan(read.doubles(count))
    columns.sum = read.doubles(count)
    if header.get("sum_sq"):
        columns.sum_sq = _without_nan(read.doubles(count))
    columns.worst = _unpack_worst(header.get("worst"), count)
    return columns


def _unpack_scalars(header: dict[str, Any], read: _ColumnReader, count: int) -> ScalarColumns:
    names = header.get("names", ())
    return ScalarColumns(
        key=[names[i] for i in read.integers(count)],
        iteration=read.integers(count),
        microbatch=read.integers(count),
        weight=read.integers(count),
        value=read.doubles(count),
        rule=[Rule(rule) for rule in header.get("rules", ())],
        is_global=header.get("global", []),
    )


class _ColumnReader:
    """Takes columns off the front of a record's bytes."""

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def integers(self, count: int) -> list[int]:
        return cast(list[int], self._column("q", count))

    def doubles(self, count: int) -> list[float]:
        return cast(list[float], self._column("d", count))

    def _column(self, code: Literal["q", "d"], count: int) -> list[int] | list[float]:
        column: array[Any] = array(code)
        column.frombytes(self._data[: 8 * count])
        self._data = self._data[8 * count :]
        return little_endian(column).tolist()


def _numbers(code: Literal["q", "d"], values: Sequence[float]) -> bytes:
    return little_endian(array(code, values)).tobytes()


def _filled(values: Sequence[int | None]) -> list[int]:
    return [_NULL_INTEGER if value is None else value for value in values]


def _with_nan(values: Sequence[float | None]) -> Sequence[float]:
    if None not in values:
        return cast("Sequence[float]", values)
    return [math.nan if value is None else value for value in values]


def _without_nan(values: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]


def _pack_worst(worst: Sequence[Worst | None] | None) -> list[list[Any]]:
    """Return (row, worst) of the partials that have one."""
    return [[i, pack_worst(w)] for i, w in enumerate(worst or ()) if w is not None]


def _unpack_worst(packed: list[list[Any]] | None, count: int) -> list[Worst | None] | None:
    if not packed:
        return None
    column: list[Worst | None] = [None] * count
    for row, worst in packed:
        column[row] = unpack_worst(worst)
    return column


def pack_worst(worst: Worst) -> list[Any]:
    """Return a worst token as a list that JSON (Python's, with NaN) keeps exactly."""
    return [*worst.position, worst.a, worst.b, worst.ulp, worst.token_id, worst.sample]


def unpack_worst(packed: list[Any]) -> Worst:
    """Return what `pack_worst` was given."""
    row, column, a, b, ulp, token_id, sample = packed
    return Worst((row, column), a, b, ulp, token_id, sample)
