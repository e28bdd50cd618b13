"""Objects with known members, alone, in rows or in columns: one table, three ways to send it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from rankfold.answers import JsonObject
from rankfold_service.http.kinds import Fault, Member, Members, of_types, within

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Table:
    """An object's members; others are refused.

    A name that stands twice in one object has the last value, as most JSON readers take it:
    the parser does not show the first.
    """

    members: Members

    @cached_property
    def required(self) -> frozenset[str]:
        """The members that must be there."""
        return frozenset(name for name, member in self.members.items() if member.required)

    @property
    def schema(self) -> JsonObject:
        """One such object as JSON Schema."""
        return self._schema(
            {name: _described(m, m.kind.schema) for name, m in self.members.items()}
        )

    @property
    def columns_schema(self) -> JsonObject:
        """Many of them as one object of arrays, as JSON Schema."""
        return self._schema(
            {
                name: _described(m, {"type": "array", "items": m.kind.schema})
                for name, m in self.members.items()
            }
        )

    def _schema(self, properties: JsonObject) -> JsonObject:
        return {
            "type": "object",
            "properties": properties,
            "required": [name for name in self.members if name in self.required],
            "additionalProperties": False,
        }

    def transposed(self, rows: Sequence[Any]) -> Columns | None:
        """Return rows as columns; None where one is no object or lacks a required member."""
        if not of_types(rows, dict):
            return None
        optional = set().union(*rows) - self.required
        if not optional <= self.members.keys():
            return None
        try:
            columns = {name: [row[name] for row in rows] for name in self.required}
        except KeyError:
            return None
        for name in optional:
            default = self.members[name].default
            columns[name] = [row.get(name, default) for row in rows]
        return columns

    def holds(self, columns: Columns) -> bool:
        """Whether these columns are known, all there, of one length and of their kinds."""
        return (
            self.required <= columns.keys() <= self.members.keys()
            and of_types(list(columns.values()), list)
            and len(set(map(len, columns.values()))) == 1
            and all(self.members[name].kind.fits(column) for name, column in columns.items())
        )

    def fits(self, column: Sequence[Any]) -> bool:
        """Whether every value is such an object."""
        columns = self.transposed(column)
        return columns is not None and self.holds(columns)

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield what is wrong with one object."""
        if type(value) is not dict:
            yield Fault((), "must be an object")
            return
        yield from self.name_faults(value)
        yield from self.value_faults(value)

    def value_faults(self, value: JsonObject) -> Iterator[Fault]:
        """Yield what is wrong with the members that are there and known."""
        for name, member in self.members.items():
            if name in value:
                yield from within(name, member.kind.faults(value[name]))

    def name_faults(self, value: JsonObject) -> Iterator[Fault]:
        """Yield the members that are missing or not known."""
        for name in self.members:
            if name in self.required and name not in value:
                yield Fault((name,), "is missing")
        for name in value:
            if name not in self.members:
                yield Fault((name,), "is not known")


class Row(NamedTuple):
    """One object of a list, and how the pointer to a member of it begins and ends."""

    number: int
    members: JsonObject
    columnar: bool

    def place(self, fault: Fault) -> Fault:
        """Return a fault of this object as seen from the list."""
        if self.columnar and fault.tokens:
            name, *rest = fault.tokens
            return Fault((name, self.number, *rest), fault.reason)
        return Fault((self.number, *fault.tokens), fault.reason)


@dataclass(frozen=True)
class Listing:
    """Many objects of one table: an array of them, or one object of arrays of one length."""

    table: Table

    @property
    def schema(self) -> JsonObject:
        """Both forms as JSON Schema."""
        return {
            "oneOf": [
                {"title": "rows", "type": "array", "items": self.table.schema},
                {"title": "columns", **self.table.columns_schema},
            ]
        }

    def columns(self, value: Any) -> Columns | None:
        """Return the list as columns that hold; None where anything is wrong with it."""
        columns = value if type(value) is dict else None
        if type(value) is list:
            columns = self.table.transposed(value)
        return columns if columns is not None and self.table.holds(columns) else None

    def fits(self, column: Sequence[Any]) -> bool:
        """Whether every value is such a list."""
        return all(self.columns(value) is not None for value in column)

    def length(self, value: Any) -> int:
        """Return how many objects a value has in either form, right or wrong."""
        if type(value) is dict:
            return max((len(c) for c in value.values() if type(c) is list), default=0)
        return len(value) if type(value) is list else 0

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield what is wrong with the list, in the form in which it was sent."""
        if type(value) is dict:
            yield from self._column_faults(value)
        elif type(value) is not list:
            yield Fault((), "must be an array of objects, or an object of arrays")
        for row in self.rows(value):
            # Of columns, names are the whole object's matter and were judged there.
            judge = self.table.value_faults if row.columnar else self.table.faults
            for fault in judge(row.members):
                yield row.place(fault)

    def rows(self, value: Any) -> Iterator[Row]:
        """Yield the objects of the list, those of columns too where all are of one length."""
        if type(value) is list:
            for index, row in enumerate(value):
                yield Row(index, row, columnar=False)
        elif type(value) is dict and of_types(list(value.values()), list):
            lengths = set(map(len, value.values()))
            for index in range(lengths.pop() if len(lengths) == 1 else 0):
                row = {name: column[index] for name, column in value.items()}
                yield Row(index, row, columnar=True)

    def _column_faults(self, value: JsonObject) -> Iterator[Fault]:
        yield from self.table.name_faults(value)
        for name, column in value.items():
            if type(column) is not list:
                yield Fault((name,), "must be an array")
        lengths = {name: len(c) for name, c in value.items() if type(c) is list}
        longest = max(lengths.values(), default=0)
        for name, length in lengths.items():
            if length != longest:
                yield Fault((name,), f"has {length} values where another array has {longest}")


def _described(member: Member, schema: JsonObject) -> JsonObject:
    shown = dict(schema)
    if member.describe:
        shown["description"] = member.describe
    if not member.required and member.default is not None:
        shown.setdefault("default", member.default)
    return shown
