"""The core's answer types as the describing library takes them.

On Python 3.11 pydantic reads `typing_extensions.TypedDict` only, and the core knows the standard
library only: so the same types are made again here, member by member.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

import typing_extensions


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
    if get_origin(hint) is NotRequired:
        return NotRequired[_described_within(get_args(hint)[0])]
    if get_origin(hint) in (list, dict):
        return get_origin(hint)[tuple(_described_within(inner) for inner in get_args(hint))]
    return hint
