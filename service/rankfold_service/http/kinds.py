"""What a JSON value may be, stated once: for whole columns, for one value in words, as a schema.

`fits` looks at a whole column at a time and is all that a good request meets. `faults` looks at
one value and says where and what is wrong with it; it runs only on what is refused.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from rankfold.answers import JsonObject
from rankfold.wire import MAX_META, MAX_NAME, name_fault

MAX_DOUBLE = sys.float_info.max
NON_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})

_CONTROL = r"\x00-\x1f\x7f-\x9f"
_FORBIDDEN = re.compile(f"[{_CONTROL}\ud800-\udfff]")


class Fault(NamedTuple):
    """What is wrong, and the members and indices that lead there."""

    tokens: tuple[str | int, ...]
    reason: str


class Kind(Protocol):
    """What a value may be."""

    @property
    def schema(self) -> JsonObject:
        """The same as JSON Schema."""
        ...

    def fits(self, column: Sequence[Any]) -> bool:
        """Whether every value of a column may stand there."""
        ...

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield what is wrong with one value; nothing exactly where a column of it fits."""
        ...


def of_types(column: Sequence[Any], *types: type) -> bool:
    """Whether every value is exactly of one of the types; True is no int here."""
    return set(map(type, column)) <= set(types)


@dataclass(frozen=True)
class Integer:
    """An integer within bounds; 1.0 and true are none."""

    low: int
    high: int

    @property
    def schema(self) -> JsonObject:
        """The same as JSON Schema."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}

    def fits(self, column: Sequence[Any]) -> bool:
        """Whether every value is such an integer."""
        return of_types(column, int) and (
            not column or (min(column) >= self.low and max(column) <= self.high)
        )

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield what is wrong with one value."""
        if not self.fits([value]):
            yield Fault((), f"must be an integer from {self.low} to {self.high}")


class Size:
    """A finite number of at least 0."""

    schema: JsonObject = {"type": "number", "minimum": 0}  # noqa: RUF012 - never changed

    def fits(self, column: Sequence[Any]) -> bool:
        """Whether every value is such a number."""
        return of_types(column, int, float) and (
            not column or (min(column) >= 0 and max(column) <= MAX_DOUBLE)
        )

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield what is wrong with one value."""
        if not self.fits([value]):
            yield Fault((), "must be a number of at least 0 that a double can hold")


class Number:
    """Any double: a number, or one of the three words for what JSON cannot write."""

    schema: JsonObject = {  # noqa: RUF012 - never changed
        "oneOf": [{"type": "number"}, {"type": "string", "enum": sorted(NON_FINITE)}]
    }

    def fits(self, column: Sequence[Any]) -> bool:
        """Whether every value is a double or one of the words."""
        if of_types(column, float):
            numbers = column
        else:
            numbers = [v for v in column if type(v) is not str or v not in NON_FINITE]
        return of_types(numbers, int, float) and (
            not numbers or (min(numbers) >= -MAX_DOUBLE and max(numbers) <= MAX_DOUBLE)
        )

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield what is wrong with one value."""
        if not self.fits([value]):
            words = '"NaN", "Infinity" or "-Infinity"'
            yield Fault((), f"must be a number that a double can hold, or {words}")


class Boolean:
    """True or false."""

    schema: JsonObject = {"type": "boolean"}  # noqa: RUF012 - never changed

    def fits(self, column: Sequence[Any]) -> bool:
        """Whether every value is true or false."""
        return of_types(column, bool)

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield what is wrong with one value."""
        if type(value) is not bool:
            yield Fault((), "must be true or false")


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def schema(self) -> JsonObject:
        """The same as JSON Schema."""
        return {"type": "string", "enum": list(self.words)}

    def fits(self, column: Sequence[Any]) -> bool:
        """Whether every value is one of the words."""
        return of_types(column, str) and set(column) <= set(self.words)

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield what is wrong with one value."""
        if not self.fits([value]):
            yield Fault((), f"must be one of {', '.join(self.words)}")


@dataclass(frozen=True)
class Name:
    """A name; of a project or run where it stands in a path."""

    in_path: bool = False

    @property
    def schema(self) -> JsonObject:
        """The same as JSON Schema."""
        slash, dots = ("/", r"(?!\.{1,2}$)") if self.in_path else ("", "")
        pattern = f"^{dots}[^{slash}{_CONTROL}]+$"
        return {"type": "string", "minLength": 1, "maxLength": MAX_NAME, "pattern": pattern}

    def fits(self, column: Sequence[Any]) -> bool:
        """Whether every value is such a name; looks at each distinct one once."""
        return of_types(column, str) and not any(
            name_fault(name, in_path=self.in_path) for name in set(column)
        )

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield what is wrong with one value."""
        if type(value) is not str:
            yield Fault((), "must be a string")
        elif reason := name_fault(value, in_path=self.in_path):
            yield Fault((), reason)


@dataclass(frozen=True)
class Text:
    """A short string that may be shown anywhere."""

    most: int
    least: int = 0

    @property
    def schema(self) -> JsonObject:
        """The same as JSON Schema."""
        length = {"minLength": self.least, "maxLength": self.most}
        return {"type": "string", **length, "pattern": f"^[^{_CONTROL}]*$"}

    def fits(self, column: Sequence[Any]) -> bool:
        """Whether every value is such a string."""
        return of_types(column, str) and not any(
            not self.least <= len(text) <= self.most or _FORBIDDEN.search(text) for text in column
        )

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield what is wrong with one value."""
        if type(value) is not str:
            yield Fault((), "must be a string")
        elif not self.fits([value]):
            size = f"must have {self.least} to {self.most} characters"
            yield Fault((), f"{size}, no control characters and no lone surrogates")


@dataclass(frozen=True)
class Nullable:
    """A kind, or null."""

    kind: Kind

    @property
    def schema(self) -> JsonObject:
        """The same as JSON Schema."""
        return {"anyOf": [self.kind.schema, {"type": "null"}]}

    def fits(self, column: Sequence[Any]) -> bool:
        """Whether every value that is not null is of the kind."""
        return self.kind.fits([value for value in column if value is not None])

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield what is wrong with one value."""
        if value is not None:
            for tokens, reason in self.kind.faults(value):
                yield Fault(tokens, reason if tokens else f"{reason}, or null")


@dataclass(frozen=True)
class Pair:
    """An array of two values of a kind."""

    kind: Kind

    @property
    def schema(self) -> JsonObject:
        """The same as JSON Schema."""
        return {"type": "array", "items": self.kind.schema, "minItems": 2, "maxItems": 2}

    def fits(self, column: Sequence[Any]) -> bool:
        """Whether every value is such an array."""
        return of_types(column, list) and all(
            len(pair) == 2 and self.kind.fits(pair) for pair in column
        )

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield what is wrong with one value."""
        if type(value) is not list or len(value) != 2:
            yield Fault((), "must be an array of two")
            return
        for index, item in enumerate(value):
            yield from within(index, self.kind.faults(item))


@dataclass(frozen=True)
class Meta:
    """Short strings by name."""

    name: Kind
    text: Kind

    @property
    def schema(self) -> JsonObject:
        """The same as JSON Schema."""
        return {
            "type": "object",
            "propertyNames": self.name.schema,
            "additionalProperties": self.text.schema,
            "maxProperties": MAX_META,
        }

    def fits(self, column: Sequence[Any]) -> bool:
        """Whether every value is such an object."""
        return of_types(column, dict) and all(
            len(meta) <= MAX_META and self.name.fits([*meta]) and self.text.fits([*meta.values()])
            for meta in column
        )

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield what is wrong with one value."""
        if type(value) is not dict:
            yield Fault((), "must be an object")
            return
        if len(value) > MAX_META:
            yield Fault((), f"must have at most {MAX_META} members, not {len(value)}")
        for name, text in value.items():
            yield from within(
                name, (Fault((), f"its name {f.reason}") for f in self.name.faults(name))
            )
            yield from within(name, self.text.faults(text))


def within(token: str | int, faults: Iterator[Fault]) -> Iterator[Fault]:
    """Yield faults as seen from one level further out."""
    return (Fault((token, *fault.tokens), fault.reason) for fault in faults)


class Member(NamedTuple):
    """A member of an object: `default` stands for it where it is left out and not required."""

    kind: Kind
    required: bool = True
    default: Any = None
    describe: str = ""


Members = Mapping[str, Member]
