"""What is read quickly is what pydantic takes of the same bytes, to the last bit and type."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated, Any

import msgspec
import pytest
from annotated_types import Gt
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from rankfold.errors import Inconsistent, RequestError
from rankfold.partial import MAX_COUNT, MAX_INDEX
from rankfold.wire import MAX_META, MAX_META_VALUE
from rankfold_service.http.quick import QuickReader
from rankfold_service.http.shapes import EXAMPLES, REPORT, ReportBody
from unit.service.http.test_decode import PARTIAL, SCALAR, WORST

READER = QuickReader(REPORT, ReportBody)
DECODER = msgspec.json.Decoder(READER.type)

# What stands in for a value, as text: numbers as people and programs may write them, and others.
DIGITS = st.text("0123456789", min_size=1, max_size=40)
NUMBERS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    DIGITS | st.sampled_from(["0", "1"]),
    st.just("") | DIGITS.map(".{}".format),
    st.just("") | st.builds("{}{}".format, st.sampled_from(["e", "E-", "e+"]), st.integers(0, 400)),
)
EDGES = [0, 1, MAX_INDEX, MAX_INDEX + 1, MAX_COUNT, MAX_COUNT + 1, -1, 2**63, 2**64, 10**400]
WORDS = [
    *map(str, EDGES),
    *("0.0", "-0.0", "1.0", "1e0", "1e999", "-1e999", "5e-324", "2e-324", "1.7976931348623159e308"),
    *("NaN", "Infinity", "-Infinity", "null", "true", "false", "[]", "{}", "[[]]", "[null]"),
    *('"NaN"', '"Infinity"', '"nan"', '"mean"', '"median"', '""', '"a"', r'"\n"', r'"a\u000a"'),
    *(
        r'"\ud800"',
        r'"\ud83d\ude00"',
        r'"\u0000"',
        r'"\u007f"',
        '"\x7f"',
        '"\u0085"',
        '"\U0001f600"',
    ),
    *(f'"{"ü" * n}"' for n in (200, 201, MAX_META_VALUE, MAX_META_VALUE + 1)),
    *("[0,1]", "[0]", "[0,1,2]", "[1.0,0]", "[-1,0]", '{"a":"b"}', '{"a":1}', r'{"a\n":"b"}'),
    *('{"":"b"}', r'{"a":"b\n"}', '{"a":null}', f'{{"{"k" * 201}":""}}'),
    json.dumps({str(n): "" for n in range(MAX_META)}),
    json.dumps({str(n): "" for n in range(MAX_META + 1)}),
]
VALUES = NUMBERS | st.sampled_from(WORDS)


def compact(document: Any) -> str:
    """Return a document as text that a part of can be put in the place of."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


ROWS = {
    "run": "r",
    "rank": 0,
    "project": "p",
    "attempt": 0,
    "world_size": 2,
    "meta": {"a": "b"},
    "dropped": 0,
    "partials": [
        {
            **PARTIAL,
            **{"nonfinite": 0, "sum_sq": 0.5, "ulp_max": 1, "total": 9},
            "worst": {**WORST, "token_id": 7, "sample": "s"},
        }
    ],
    "scalars": [{**SCALAR, "weight": 1, "global": False}],
    "commits": [{"iteration": 0, "microbatches": 1}],
}
COLUMNS = {
    name: {member: [part] for member, part in value[0].items()}
    if isinstance(value, list)
    else value
    for name, value in ROWS.items()
}


def places(value: Any) -> list[tuple[Any, ...]]:
    """Return the way to each part of a document."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return [
        way
        for name, part in parts
        for way in [(name,), *((name, *rest) for rest in ways_into(part))]
    ]


def ways_into(part: Any) -> list[tuple[Any, ...]]:
    """Return the ways on into a part that has any."""
    return places(part) if isinstance(part, dict | list) else []


def with_text(document: Any, way: tuple[Any, ...], text: str) -> str:
    """Return a document in which a text stands in the place of a part."""
    copy = json.loads(json.dumps(document))
    at = copy
    for step in way[:-1]:
        at = at[step]
    at[way[-1]] = "<here>"
    return compact(copy).replace('"<here>"', text)


BODIES = st.sampled_from([ROWS, COLUMNS]).flatmap(
    lambda document: st.builds(
        with_text, st.just(document), st.sampled_from(places(document)), VALUES
    )
)


def agree(body: bytes) -> bool:
    """Check that what is read quickly is what pydantic says; return whether it was."""
    try:
        quick = msgspec.to_builtins(DECODER.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError):
        with suppress(RequestError):  # what is taken after all is so in the same form
            assert isinstance(READER.read(body), READER.type)
        return False
    assert repr(sort(quick)) == repr(sort(REPORT.validate_json(body)))
    return True


def sort(value: Any) -> Any:
    """Return a document with its members in order."""
    if isinstance(value, dict):
        return {name: sort(value[name]) for name in sorted(value)}
    return [*map(sort, value)] if isinstance(value, list) else value


@given(BODIES)
def test_what_is_read_quickly_is_what_pydantic_takes(text: str) -> None:
    """No part may be read in another way, wherever it stands and however it is written."""
    agree(text.encode())


@pytest.mark.parametrize("document", [ROWS, COLUMNS], ids=["rows", "columns"])
def test_every_edge_in_every_place(document: dict[str, Any]) -> None:
    """Each limit is the same in both: values at it and beyond it, in each place."""
    taken = [
        agree(with_text(document, way, text).encode()) for way in places(document) for text in WORDS
    ]
    assert 100 < sum(taken) < len(taken)


@given(st.floats(min_value=0, allow_infinity=False), st.integers(0, 40))
@example(2.2250738585072011e-308, 0)
@example(1.7976931348623157e308, 0)
def test_doubles_come_exactly(value: float, digits: int) -> None:
    """However many digits a number has, it is the nearest double."""
    exact = f"{value:.{digits + 17}e}"
    body = with_text(COLUMNS, ("partials", "sum", 0), exact).encode()
    assert repr(DECODER.decode(body).partials.sum[0]) == repr(float(exact))


@given(st.data())
def test_bytes_that_are_broken_anywhere(data: st.DataObject) -> None:
    """Bytes cut off, changed or put in anywhere are read as pydantic reads them, or not."""
    body = compact(data.draw(st.sampled_from([ROWS, COLUMNS]))).encode()
    at = data.draw(st.integers(0, len(body)))
    cut = data.draw(st.integers(0, 3))
    agree(body[:at] + data.draw(st.binary(max_size=3)) + body[at + cut :])


def test_all_examples_are_read_quickly() -> None:
    """What people are shown goes the quick way."""
    for document in (*EXAMPLES.values(), ROWS, COLUMNS):
        assert agree(compact(document).encode())


def test_lone_surrogates_are_read_all_the_same() -> None:
    """What only the other reader reads comes in the same form, for who checks names."""
    body = with_text(COLUMNS, ("partials", "series", 0), r'"\ud800"').encode()
    with pytest.raises(msgspec.DecodeError):
        DECODER.decode(body)
    assert READER.read(body).partials.series == ["\ud800"]


def test_what_is_refused_says_where() -> None:
    """A refusal names the place, as everywhere."""
    with pytest.raises(Inconsistent) as caught:
        READER.read(with_text(COLUMNS, ("rank",), "-1").encode())
    assert dict(caught.value.errors).keys() == {"/rank"}


def test_a_limit_without_a_like_is_an_error() -> None:
    """A body cannot be described in a way that one of both readers would overlook."""

    class Strange(TypedDict):
        more: Annotated[int, Gt(0)]

    class Hidden(TypedDict):
        even: Annotated[int, Field(multiple_of=2)]

    class Other(TypedDict):
        raw: bytes

    for described in (Strange, Hidden):
        with pytest.raises(KeyError):
            QuickReader(TypeAdapter(described), described)
    with pytest.raises(TypeError, match="bytes"):
        QuickReader(TypeAdapter(Other), Other)


def test_a_limit_of_a_field_holds() -> None:
    """Limits that a field says are heeded, too."""

    class Bounded(TypedDict):
        few: Annotated[int, Field(le=3, description="at most three")]

    reader = QuickReader(TypeAdapter(Bounded), Bounded)
    assert reader.read(b'{"few":3}').few == 3
    with pytest.raises(Inconsistent):
        reader.read(b'{"few":4}')
    with pytest.raises(ValidationError):
        TypeAdapter(Bounded).validate_json(b'{"few":4}')
