"""Iterations as bytes of a format: rows with one column for each key."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple

from rankfold.errors import ConfigurationError
from rankfold.partial import number_from_json

FIXED = ("iteration", "complete")
TAKEN = re.compile(f"({'|'.join(FIXED)})_*")
# JSON allows these in strings; who cuts a text into lines may cut there.
LINE_ENDS = str.maketrans({end: f"\\u{ord(end):04x}" for end in "\u2028\u2029"})
MOST_CELLS = 250_000  # of a Parquet file's row group, which is in memory at once
# Totals go on growing while iterations are read.
MOST_INT64 = 2**62

Item = dict[str, Any]
Pages = Iterator[list[Item]]


class Column(NamedTuple):
    """A key's column.

    Attributes:
        key: whose values it has.
        name: its own.
        integer: its values are exact integers, none larger than `most`.
    """

    key: str
    name: str
    integer: bool
    most: int


def columns_of(keys: dict[str, Item]) -> list[Column]:
    """Return the columns of a run's keys, as its totals show them.

    A total tells integers from floats: one of integers is never null, for such a key only exists
    once there is something to count.
    """
    return [_column(name, key["value"]) for name, key in keys.items()]


def _column(key: str, total: Any) -> Column:
    integer = isinstance(total, int)
    return Column(key, _name(key), integer, abs(total) if integer else 0)


def _name(key: str) -> str:
    """Return the name of a key's column: one that is taken gets an underscore.

    So does one that is taken but for underscores at its end; no two keys share a name that way.
    """
    return f"{key}_" if TAKEN.fullmatch(key) else key


def write_csv(sink: BinaryIO, columns: list[Column], pages: Pages) -> None:
    """Write CSV as in RFC 4180, in UTF-8, with a line of names first."""
    sink.write(_csv([[*FIXED, *(column.name for column in columns)]]))
    for items in pages:
        sink.write(_csv([_cells(item, columns) for item in items]))


def _cells(item: Item, columns: list[Column]) -> list[Any]:
    complete = "true" if item["complete"] else "false"
    return [item["iteration"], complete, *(item["keys"].get(column.key) for column in columns)]


def _csv(rows: list[list[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def write_jsonl(sink: BinaryIO, columns: list[Column], pages: Pages) -> None:
    """Write one JSON object a line, each with every column."""
    write = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
    for items in pages:
        for item in items:
            row = {name: item[name] for name in FIXED}
            row |= {column.name: item["keys"].get(column.key) for column in columns}
            sink.write(write(row).translate(LINE_ENDS).encode() + b"\n")


def write_parquet(sink: BinaryIO, columns: list[Column], pages: Pages) -> None:
    """Write Parquet by row groups of bounded size.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
        ConfigurationError: a value outgrew the type that its column had at the start.
    """
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    schema = _schema(arrow, columns)
    most = max(1, MOST_CELLS // len(schema))
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for items in _groups(pages, most):
            try:
                arrays = [
                    arrow.array(values, type=field.type)
                    for values, field in zip(_values(items, columns), schema, strict=True)
                ]
            except (ArithmeticError, ValueError) as error:  # pyarrow's are among them
                raise ConfigurationError(f"a key outgrew its type, export again: {error}") from None
            writer.write_table(arrow.table(arrays, schema=schema))


def _schema(arrow: Any, columns: list[Column]) -> Any:
    fields = [("iteration", arrow.int64()), ("complete", arrow.bool_())]
    return arrow.schema([*fields, *((column.name, _type(arrow, column)) for column in columns)])


def _type(arrow: Any, column: Column) -> Any:
    if not column.integer:
        return arrow.float64()
    return arrow.int64() if column.most < MOST_INT64 else arrow.decimal128(38, 0)


def _groups(pages: Pages, most: int) -> Iterator[list[Item]]:
    """Yield the items of the pages in lists of `most`, the last one shorter."""
    waiting: list[Item] = []
    for items in pages:
        waiting += items
        while len(waiting) >= most:
            yield waiting[:most]
            del waiting[:most]
    if waiting:
        yield waiting


def _values(items: list[Item], columns: list[Column]) -> Iterator[list[Any]]:
    for name in FIXED:
        yield [item[name] for item in items]
    for column in columns:
        convert = _integer(column) if column.integer else number_from_json
        found = (item["keys"].get(column.key) for item in items)
        yield [None if value is None else convert(value) for value in found]


def _integer(column: Column) -> Callable[[Any], Any]:
    return int if column.most < MOST_INT64 else Decimal


FORMATS: dict[str, Callable[[BinaryIO, list[Column], Pages], None]] = {
    "csv": write_csv,
    "jsonl": write_jsonl,
    "parquet": write_parquet,
}
