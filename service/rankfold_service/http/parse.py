"""Bytes to JSON values, strictly: no NaN tokens, no bombs by depth or by digits."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from pydantic_core import from_json

from rankfold.errors import MalformedBody

MAX_DEPTH = 200
_TOO_LARGE = 10**400  # an integer that no bound and no double takes


def parse(body: bytes) -> Any:
    """Return the value of a JSON document.

    An integer of very many digits comes back as one that is merely too large; lone surrogates
    stay in, for they are legal JSON: both are for the caller to refuse where they stand.

    Raises:
        MalformedBody: it is not JSON in UTF-8, or nested too deep.
    """
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError:
        # The fast parser refuses lone surrogates and long integers too, without saying where.
        return _parse_carefully(body)


def _parse_carefully(body: bytes) -> Any:
    try:
        value = json.loads(
            body.decode(), parse_constant=_refuse_constant, parse_int=_bounded_integer
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
