"""The core's answer types as the describing library takes them.

On Python 3.11 pydantic reads `typing_extensions.TypedDict` only, and the core knows the standard
library only: so the same types are made again here, member by member.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import (
    Annotated,
    Any,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import typing_extensions
from annotated_types import BaseMetadata, Ge, MaxLen, MinLen

from rankfold import answers


@cache
def described(answer: type) -> Any:
    """Return a typed dictionary of the core, and those within it, as pydantic can read it."""
    hints = get_type_hints(answer, include_extras=True)
    members = {name: _described_within(hint) for name, hint in hints.items()}
    make: Any = typing_extensions.TypedDict  # the checker wants names written out
    made = make(answer.__name__, members)
    made.__doc__ = answer.__doc__
    made.__module__ = answer.__module__
    return made


def _described_within(hint: Any) -> Any:
    if is_typeddict(hint):
        return described(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        limits = [limit for said in hint.__metadata__ for limit in _limits(said)]
        return Annotated[_described_within(arguments[0]), *limits]
    within = tuple(map(_described_within, arguments))
    if origin is NotRequired:
        return NotRequired[within[0]]
    if origin in (Union, UnionType):
        return reduce(or_, within)
    return origin[within] if origin in (list, dict) else hint


def _limits(said: answers.Least | answers.Length) -> list[BaseMetadata]:
    """Return what the core says of a number or a list as the describing library takes it."""
    if isinstance(said, answers.Least):
        return [Ge(said.value)]
    return [MinLen(said.items), MaxLen(said.items)]
