"""One journal record: a report, a finish or a delete as bytes, exact to the bit.

Numbers are columns of doubles and of integers as narrow as they allow; what has no fixed size
is a JSON header. Each record carries its length and a CRC-32, so that damage is found before it
is believed.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, cast

from rankfold.partial import PartialColumns, Worst, picker
from rankfold.rules import Rule
from rankfold.wire import Commit, Report, ScalarColumns
from rankfold_service.store import Name
from rankfold_service.store.columns import WIDEST, encode, narrow, pack_as, unpack_as

_FRAME = struct.Struct("<II")
_SIZES = struct.Struct("<III")
_LENGTH = struct.Struct("<I")
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


def name_of(entry: Entry) -> Name:
    """Return which run an entry is about."""
    return entry.report.project, entry.report.run


class DamagedRecord(Exception):
    """The bytes are not what was written."""


def pack(entry: Entry) -> bytes:
    """Return an entry as one framed record."""
    report = entry.report
    partials, scalars = report.partials, report.scalars
    names = list(dict.fromkeys(chain(partials.series, scalars.key)))
    index = {name: i for i, name in enumerate(names)}
    optional = [f for f in _OPTIONAL_INTEGERS if getattr(partials, f) is not None]
    worst = [i for i, token in enumerate(partials.worst or ()) if token is not None]
    columns = _ColumnWriter()
    if len(partials):
        _put_partials(columns, partials, index, optional)
    if worst:
        _put_worst(columns, worst, picker(worst)(partials.worst or ()))
    if len(scalars):
        _put_scalars(columns, scalars, index)
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
        "worst": len(worst),
        "rules": scalars.rule,
        "global": scalars.is_global,
        "codes": columns.codes,
    }
    # What is empty or false is what a reader takes it for: it is left out.
    text = encode({name: value for name, value in header.items() if value})
    sizes = _SIZES.pack(len(text), len(partials), len(scalars))
    body = b"".join((sizes, text, *columns.parts))
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def _put_partials(
    columns: _ColumnWriter, partials: PartialColumns, index: dict[str, int], optional: list[str]
) -> None:
    columns.integers([*map(index.__getitem__, partials.series)])
    for field in _PARTIAL_INTEGERS:
        columns.integers(getattr(partials, field))
    for field in optional:
        columns.integers(_filled(getattr(partials, field)))
    columns.doubles(_with_nan(partials.max))
    columns.doubles(partials.sum)
    if partials.sum_sq is not None:
        columns.doubles(_with_nan(partials.sum_sq))


def _put_worst(columns: _ColumnWriter, rows: list[int], worst: Sequence[Worst]) -> None:
    """Put the worst tokens of these rows; names of samples are JSON where there are any."""
    position, a, b, ulp, token_id, sample = zip(*worst, strict=True)
    columns.integers(rows)
    for each in zip(*position, strict=True):
        columns.integers(each)
    columns.doubles(a)
    columns.doubles(b)
    columns.integers(ulp)
    columns.integers(_filled(token_id))
    columns.anything([] if sample.count(None) == len(sample) else sample)


def _put_scalars(columns: _ColumnWriter, scalars: ScalarColumns, index: dict[str, int]) -> None:
    columns.integers([*map(index.__getitem__, scalars.key)])
    columns.integers(scalars.iteration)
    columns.integers(scalars.microbatch)
    columns.integers(scalars.weight)
    columns.doubles(scalars.value)


def unpack_all(records: bytes) -> Iterator[Entry]:
    """Yield the entries of records that were joined.

    Raises:
        DamagedRecord: a length or a checksum does not fit, or there is no record.
    """
    at = 0
    if not records:
        raise DamagedRecord("its records are gone")
    while at < len(records):
        if at + _FRAME.size > len(records):
            raise DamagedRecord("a record's frame is cut off")
        length, checksum = _FRAME.unpack_from(records, at)
        at += _FRAME.size
        body = records[at : at + length]
        # Of no bytes the checksum is 0, so that zeros would look like a record.
        if not length or len(body) != length or zlib.crc32(body) != checksum:
            raise DamagedRecord("a record's checksum does not fit")
        at += length
        yield _unpack(body)


def _unpack(body: bytes) -> Entry:
    header_size, partial_count, scalar_count = _SIZES.unpack_from(body)
    start = _SIZES.size + header_size
    header = json.loads(body[_SIZES.size : start])
    read = _ColumnReader(body, start, header.get("codes", ""))
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
        setattr(columns, field, _with_none(read.integers(count)))
    columns.max = _without_nan(read.doubles(count))
    columns.sum = read.doubles(count)
    if header.get("sum_sq"):
        columns.sum_sq = _without_nan(read.doubles(count))
    columns.worst = _unpack_worst(header.get("worst"), read, count)
    return columns


def _unpack_worst(said: Any, read: _ColumnReader, count: int) -> list[Worst | None] | None:
    """Return the column of worst tokens; records of before have them as JSON in their header."""
    if not said:
        return None
    if isinstance(said, list):
        found = {row: unpack_worst(token) for row, token in said}
    else:
        rows = read.integers(said)
        positions = zip(read.integers(said), read.integers(said), strict=True)
        a, b = read.doubles(said), read.doubles(said)
        ulp, token_id = read.integers(said), _with_none(read.integers(said))
        sample = read.anything() or [None] * said
        found = dict(zip(rows, map(Worst, positions, a, b, ulp, token_id, sample), strict=True))
    return [found.get(row) for row in range(count)]


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


class _ColumnWriter:
    """Gathers columns as bytes, each of integers as narrow as its values allow.

    Attributes:
        codes: of `struct`, one for each column of integers.
        parts: what to join.
    """

    def __init__(self) -> None:
        self.codes = ""
        self.parts: list[bytes] = []

    def integers(self, values: Sequence[int]) -> None:
        """Add a column of 64-bit integers."""
        code, data = narrow(values)
        self.codes += code
        self.parts.append(data)

    def doubles(self, values: Sequence[float]) -> None:
        """Add a column of doubles."""
        self.parts.append(pack_as("d", values))

    def anything(self, value: Any) -> None:
        """Add what JSON holds."""
        data = encode(value)
        self.parts += (_LENGTH.pack(len(data)), data)


class _ColumnReader:
    """Takes columns off a record's bytes in the order in which they were added.

    Args:
        data: the record.
        at: where its first column begins.
        codes: see `_ColumnWriter`; records of before have none, for each column is of the widest.
    """

    def __init__(self, data: bytes, at: int, codes: str) -> None:
        self._data = data
        self._at = at
        self._codes = iter(codes)

    def integers(self, count: int) -> list[int]:
        """Return the next column of so many integers; an empty one takes no place."""
        return self._take(count, next(self._codes, WIDEST)) if count else []

    def doubles(self, count: int) -> list[float]:
        """Return the next column of so many doubles."""
        return self._take(count, "d")

    def anything(self) -> Any:
        """Return what JSON holds."""
        (length,) = _LENGTH.unpack_from(self._data, self._at)
        start = self._at + _LENGTH.size
        self._at = start + length
        return json.loads(self._data[start : self._at])

    def _take(self, count: int, code: str) -> list[Any]:
        at = self._at
        self._at += count * struct.calcsize(f"<{code}")
        return [*unpack_as(code, count, self._data, at)]


def _filled(values: Sequence[int | None]) -> Sequence[int]:
    if None not in values:
        return cast("Sequence[int]", values)
    return [_NULL_INTEGER if value is None else value for value in values]


def _with_none(values: Sequence[int]) -> Sequence[int | None]:
    if _NULL_INTEGER not in values:
        return values
    return [None if value == _NULL_INTEGER else value for value in values]


def _with_nan(values: Sequence[float | None]) -> Sequence[float]:
    if None not in values:
        return cast("Sequence[float]", values)
    return [math.nan if value is None else value for value in values]


def _without_nan(values: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]


def pack_worst(worst: Worst) -> list[Any]:
    """Return a worst token as a list that JSON (Python's, with NaN) keeps exactly."""
    return [*worst.position, worst.a, worst.b, worst.ulp, worst.token_id, worst.sample]


def unpack_worst(packed: list[Any]) -> Worst:
    """Return what `pack_worst` was given."""
    row, column, a, b, ulp, token_id, sample = packed
    return Worst((row, column), a, b, ulp, token_id, sample)
