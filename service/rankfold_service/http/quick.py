"""Bodies read by msgspec, in a third of the time, as the types say by which pydantic checks them.

What one refuses the other looks at, which names every fault. There is one description of a body:
the types here are made from it, and a constraint that has no like here is an error at import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import or_
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from annotated_types import Ge, Le, MaxLen, MinLen
from msgspec import UNSET, UnsetType
from pydantic import AllowInfNan, StringConstraints, TypeAdapter
from pydantic.fields import FieldInfo
from typing_extensions import is_typeddict  # takes those of typing, too

from rankfold_service.http.parse import parse

_LIMITS: dict[type, Callable[[Any], dict[str, Any]]] = {
    Ge: lambda limit: {"ge": limit.ge},
    Le: lambda limit: {"le": limit.le},
    MinLen: lambda limit: {"min_length": limit.min_length},
    MaxLen: lambda limit: {"max_length": limit.max_length},
    StringConstraints: lambda text: {
        "min_length": text.min_length,
        "max_length": text.max_length,
        # Where patterns are Python's, a dollar sign lets a line feed through.
        "pattern": text.pattern.removesuffix("$") + r"\Z",
    },
    AllowInfNan: lambda _: {},  # JSON has none
}
_MANNERS = {"fail_fast", "union_mode"}


class QuickReader:
    """Reads bodies of one shape.

    What it gives are structures of msgspec, with `UNSET` where a member was left out.

    Args:
        shape: what the bodies are.
        described: the type of which the shape was made.
    """

    def __init__(self, shape: TypeAdapter[Any], described: Any) -> None:
        self._shape = shape
        self.type = _type(described)
        self._decode = msgspec.json.Decoder(self.type).decode

    def read(self, body: bytes) -> Any:
        """Return the body as its shape says; see `parse`.

        Raises:
            MalformedBody: it is not JSON in UTF-8, or nested too deep.
            Inconsistent: it is not of that shape; names each fault, the first `MAX_FAULTS`.
        """
        try:
            return self._decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # before 0.23 all three
            # Lone surrogates are JSON, and no name: what is read of them here says where they are.
            return msgspec.convert(parse(body, self._shape), self.type)


def _type(described: Any) -> Any:
    """Return what msgspec takes for a type of pydantic's."""
    if is_typeddict(described):
        return _structure(described)
    origin, arguments = get_origin(described), get_args(described)
    if origin is Annotated:
        return _limited(_type(arguments[0]), described.__metadata__)
    if origin is list:
        return list[_type(arguments[0])]  # type: ignore[misc]
    if origin is dict:
        return dict[_type(arguments[0]), _type(arguments[1])]  # type: ignore[misc]
    if origin in (Union, UnionType):
        return reduce(or_, map(_type, arguments))
    if origin is Literal or described in (int, float, str, bool, type(None)):
        return described
    raise TypeError(f"{described} has no like in msgspec")


def _structure(described: Any) -> type[msgspec.Struct]:
    """Return the structure that has the members of a dictionary and takes no others."""
    members: list[Any] = []
    for name, hint in get_type_hints(described, include_extras=True).items():
        if get_origin(hint) is NotRequired:
            members.append((name, _type(get_args(hint)[0]) | UnsetType, UNSET))
        else:
            members.append((name, _type(hint)))
    return msgspec.defstruct(
        described.__name__, members, kw_only=True, forbid_unknown_fields=True, gc=False
    )


def _limited(kind: Any, said: Iterable[Any]) -> Any:
    """Return a type within the limits that are said of it.

    Raises:
        KeyError: there is one that has no like in msgspec.
    """
    limits: dict[str, Any] = {}
    for each in said:
        for limit in _limits(each.metadata) if isinstance(each, FieldInfo) else (each,):
            limits |= _LIMITS[type(limit)](limit)
    return Annotated[kind, msgspec.Meta(**limits)] if limits else kind


def _limits(metadata: Iterable[Any]) -> Iterator[Any]:
    """Yield the limits that a field says, and not what only says how pydantic goes about it."""
    return (each for each in metadata if not getattr(each, "__dict__", _LIMITS).keys() <= _MANNERS)
