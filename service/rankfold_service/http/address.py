"""Takes a request's path and query literally, where the framework would read them as another's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.requests import Request

from rankfold.errors import FieldError, Inconsistent, NotFound
from rankfold.wire import field_error
from rankfold_service.http.queries import REPEATABLE


def check_address(request: Request) -> None:
    """Refuse names that nothing can have, a query that is not UTF-8, and what is given too often.

    The framework puts U+FFFD in the place of what is not UTF-8, which is a name of its own. It
    takes an encoded slash for one between names, and the last of several values.

    Raises:
        NotFound: a name in the path is not UTF-8, or has a slash: nothing can have such a name.
        Inconsistent: the query is not, or repeats what it may not; names each parameter.
    """
    path: bytes = request.scope.get("raw_path") or b""
    if b"%" in path:
        try:
            unquote_to_bytes(path).decode()
        except UnicodeDecodeError as error:
            raise NotFound("the path is not UTF-8, percent-encoded: no name is") from error
        if b"%2f" in path.lower():
            raise NotFound("the path has a percent-encoded slash: no project's or run's name has")
    query: bytes = request.scope["query_string"]
    faults = [*_query_faults(query)] if query else []
    if faults:
        raise Inconsistent(faults)


def _query_faults(query: bytes) -> Iterator[FieldError]:
    if not query.isascii():  # the framework would take each byte for a character
        yield field_error("has bytes that are not percent-encoded", "query")
        return
    given = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="surrogateescape")
    for name, value in given:
        if not (_is_text(name) and _is_text(value)):
            shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            yield field_error("is not UTF-8, percent-encoded", "query", shown)
    for name, times in Counter(name for name, _ in given).items():
        if times > 1 and name not in REPEATABLE and _is_text(name):
            yield field_error(f"is given {times} times, and may be given once", "query", name)


def _is_text(text: str) -> bool:
    """Whether nothing in it stands for a byte that is not UTF-8."""
    return not any("\udc80" <= char <= "\udcff" for char in text)
