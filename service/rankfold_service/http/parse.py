"""Bytes to a checked body, strictly; what is refused is looked at again to say where and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from rankfold.errors import FieldError, Inconsistent, MalformedBody
from rankfold.wire import field_error

T = TypeVar("T")

MAX_FAULTS = 100
MOST_ERRORS = 1_000
MAX_DEPTH = 200
_TOO_LARGE = 10**400  # an integer that no bound and no double takes


def parse(body: bytes, shape: TypeAdapter[T]) -> T:
    """Return the body as its shape says.

    Of a list with faults the first faulty item is named; there may be millions. Where a name
    stands twice in one object, the last value counts.

    Raises:
        MalformedBody: it is not JSON in UTF-8, or nested too deep.
        Inconsistent: it is not of that shape; names each fault, the first `MAX_FAULTS`.
    """
    try:
        return shape.validate_json(body)
    except ValidationError:
        # NaN tokens count as numbers there, and lone surrogates, which are JSON, do not parse.
        document = parse_carefully(body)
    return check(document, shape)


def check(document: Any, shape: TypeAdapter[T], *, strict: bool | None = None) -> T:
    """Return a parsed document as its shape says.

    Args:
        document: what was parsed.
        shape: what it has to be.
        strict: whether nothing is taken for a type that it has not; None leaves it to the shape.

    Raises:
        Inconsistent: it is not of that shape; names each fault, the first `MAX_FAULTS`.
    """
    try:
        return shape.validate_python(document, strict=strict)
    except ValidationError as error:
        raise Inconsistent(_faults(error, document)) from error


def parse_carefully(body: bytes, parse_float: Callable[[str], float] = float) -> Any:
    """Return the value of a JSON document; slower, and exact about what is wrong.

    An integer of very many digits comes back as one that is merely too large.

    Args:
        body: the document.
        parse_float: makes a number that has a fraction or an exponent.

    Raises:
        MalformedBody: it is not JSON in UTF-8, or nested too deep.
    """
    try:
        value = json.loads(
            body.decode(),
            parse_constant=_refuse_constant,
            parse_int=_bounded_integer,
            parse_float=parse_float,
        )
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8: byte {error.start}") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise MalformedBody(f"the body is not JSON: {error.msg}: {where}") from error
    except RecursionError as error:
        raise MalformedBody("the body is nested too deep") from error
    if _deeper_than(value, MAX_DEPTH):
        raise MalformedBody("the body is nested too deep")
    return value


def _refuse_constant(word: str) -> NoReturn:
    raise MalformedBody(f'the body is not JSON: {word} is not a number; write "{word}" in quotes')


def _bounded_integer(digits: str) -> int:
    return int(digits) if len(digits) <= 400 else _TOO_LARGE


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def _faults(error: ValidationError, document: Any) -> list[FieldError]:
    """Return pydantic's errors as pointers into the document, each place once.

    Above a number they are not named: making a million of them takes gigabytes.
    """
    if error.error_count() > MOST_ERRORS:
        return [field_error(f"has {error.error_count()} faults, too many to name them")]
    found: dict[str, FieldError] = {}
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    for each in errors:
        tokens = _path(each["loc"], document, missing=each["type"] == "missing")
        if tokens is not None:
            fault = field_error(each["msg"], *tokens)
            found.setdefault(fault.pointer, fault)
    if not found:  # a list or an object in the place of a number or a word: no alternative was sent
        where = _path(errors[0]["loc"][:-1], document, missing=False) or ()
        return [field_error(errors[0]["msg"], *where)]
    return list(found.values())[:MAX_FAULTS]


def _path(loc: tuple[str | int, ...], value: Any, *, missing: bool) -> tuple[str | int, ...] | None:
    """Return the members and indices that lead to a fault.

    Between them pydantic names the alternative that it tried, which is no member; a fault of
    the alternative that was not sent, rows or columns, is None.
    """
    tokens: list[str | int] = []
    for position, token in enumerate(loc):
        last = position == len(loc) - 1
        if isinstance(value, dict) and (token in value or (missing and last)):
            value = value.get(token)
        elif isinstance(value, list) and isinstance(token, int):
            value = value[token]
        elif isinstance(value, dict | list):
            if str(token).startswith("list[") is not isinstance(value, list):
                return None
            continue
        else:
            continue
        tokens.append(token)
    return tuple(tokens)
