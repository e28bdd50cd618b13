"""The one JSON body that says a batch of items, made piece by piece."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from typing import Any, NamedTuple

from rankfold.partial import MAX_COUNT, number_to_json
from rankfold_client.items import COMMIT, PARTIAL, SCALAR, WORST_VALUES, unpack

# The members of a report, each with its columns in the order of an item's values.
_LISTS = {
    PARTIAL: "partials",
    SCALAR: "scalars",
    COMMIT: "commits",
}
_COLUMNS = {
    PARTIAL: (
        *("series", "iteration", "microbatch", "valid", "count", "max", "sum"),
        *("nonfinite", "sum_sq", "ulp_max", "total"),
    ),
    SCALAR: ("key", "iteration", "microbatch", "value", "weight", "rule", "global"),
    COMMIT: ("iteration", "microbatches"),
}
_OPTIONAL = ("sum_sq", "ulp_max", "total")
# How many items, worst positions and values are worked on in one go, which takes a fraction of a
# millisecond: nothing else in the process can interrupt it. Of items there are so few at a time
# that the garbage collector, which counts containers, is not set off.
_ITEMS, _WORSTS, _VALUES = 100, 200, 500

_write = json.JSONEncoder(allow_nan=False, separators=(",", ":"), check_circular=False).encode

# A worst position: row, column, both values as text, steps, and what names it.
_WORST = '{"position":[%s,%s],"a":%s,"b":%s,"ulp":%s%s}'

Values = list[Any]


class Body(NamedTuple):
    """A report as it is sent.

    Attributes:
        raw: the JSON.
        number: how many partials and scalars it has.
    """

    raw: bytes
    number: int


def encode(
    header: dict[str, Any], items: Sequence[bytes], pause: Callable[[], None] = lambda: None
) -> Body:
    """Return the body of a report: the header's members and the items as columns.

    A commit may stand in the body of the partials that it counts: a report is applied whole.

    Args:
        header: members that it begins with.
        items: what it says, packed.
        pause: is called between pieces, so that other threads come to their turn.

    Raises:
        TypeError, ValueError: an item holds what JSON cannot.
    """
    pieces: list[str] = []
    found = _unpacked(items, pause)
    for piece in _pieces(header, found):
        pieces.append(piece)
        pause()
    number = sum(len(lists[0]) for kind, lists in found.items() if kind != COMMIT)
    return Body("".join(pieces).encode(), number)


def _unpacked(items: Sequence[bytes], pause: Callable[[], None]) -> dict[str, list[Values]]:
    """Return a list for each value of the items of a kind."""
    found: dict[str, list[Values]] = {}
    for start in range(0, len(items), _ITEMS):
        some = [unpack(packed) for packed in items[start : start + _ITEMS]]
        for kind in _LISTS:
            rows = [item for item in some if item[0] == kind]
            if rows:
                lists = found.setdefault(kind, [[] for _ in rows[0][1:]])
                for values, more in zip(lists, list(zip(*rows, strict=True))[1:], strict=True):
                    values.extend(more)
        pause()
    return found


def _pieces(header: dict[str, Any], found: dict[str, list[Values]]) -> Iterator[str]:
    members = [f"{_write(name)}:{_write(value)}" for name, value in header.items()]
    yield "{" + ",".join(members)
    for kind, name in _LISTS.items():
        if kind in found:
            before = f',"{name}":{{'
            for column, pieces in _columns(kind, found[kind]):
                yield f'{before}"{column}":['
                yield from pieces
                before = "],"
            yield "]}"
    yield "}"


def _columns(kind: str, lists: list[Values]) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield each column that has a value, with its elements as text in pieces."""
    for name, values in zip(_COLUMNS[kind], lists, strict=False):
        if name not in _OPTIONAL or any(value is not None for value in values):
            yield name, _elements(_TEXTS.get(name, _plain), values)
    worst = lists[-WORST_VALUES:]
    if kind == PARTIAL and any(row is not None for row in worst[0]):
        yield "worst", _worst_elements(worst)


def _elements(text: Callable[[Values], str], values: Values) -> Iterator[str]:
    for start in range(0, len(values), _VALUES):
        yield ("," if start else "") + text(values[start : start + _VALUES])


def _plain(values: Values) -> str:
    return _write(values)[1:-1]


def _doubles(values: Values) -> str:
    return _digits(values) or _plain(values)


def _named_doubles(values: Values) -> str:
    """Return doubles as text, and of those that are not finite their names."""
    named = (value if value is None else number_to_json(value) for value in values)
    return _digits(values) or _plain([*named])


def _digits(values: Values) -> str:
    """Return doubles as text of 17 digits, which is read back as the same; "" where one has none.

    The shortest such text takes twice as long, and one call for all saves the rest. A zero counts
    as having none: its digits would be an integer's, which has no sign.
    """
    if all(values) and isfinite(sum(values)):
        return ",".join(["%.17g"] * len(values)) % tuple(values)
    return ""


_TEXTS = {"max": _doubles, "sum": _doubles, "sum_sq": _doubles, "value": _named_doubles}


def _worst_elements(worst: list[Values]) -> Iterator[str]:
    """Yield worst positions as text; from dicts it would take twice as long."""
    for start in range(0, len(worst[0]), _WORSTS):
        rows, columns, a, b, *rest = (values[start : start + _WORSTS] for values in worst)
        numbers = (_named_doubles(values).split(",") for values in (a, b))
        steps, labels = rest[0], map(_label, *rest[1:])
        texts = map(_WORST.__mod__, zip(rows, columns, *numbers, steps, labels, strict=True))
        text = ",".join(
            ["null" if row is None else text for row, text in zip(rows, texts, strict=True)]
        )
        yield "," + text if start else text


def _label(token: int | None, sample: str | None) -> str:
    """Return the members that name a worst position; one that cannot travel is left out."""
    token_id = f',"token_id":{token}' if token is not None and 0 <= token <= MAX_COUNT else ""
    return token_id if sample is None else f'{token_id},"sample":{_write(printable(sample))}'


def printable(text: str) -> str:
    """Return a text with what may not travel replaced by U+FFFD."""
    if text.isprintable():
        return text
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)
