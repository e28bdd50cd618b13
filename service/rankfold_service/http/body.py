"""A request's body to bytes: what its headers say it is, capped as it is and as it unpacks."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from typing import NamedTuple

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from rankfold.errors import MalformedBody, TooLarge, Unavailable, UnsupportedMedia

GZIP = zlib.MAX_WBITS | 16

# What follows a member is copied for each one, so both bound what a body of tiny members costs.
STEP = 64 * 1024
MAX_MEMBERS = 1024


class Body(NamedTuple):
    """A request's body as it came, and whether gzip packed it."""

    data: bytes
    packed: bool

    def is_small(self, size: int) -> bool:
        """Whether it has, unpacked, at most so many bytes; no more than that is unpacked."""
        if not self.packed:
            return len(self.data) <= size
        member = zlib.decompressobj(GZIP)
        try:
            member.decompress(self.data, size)
        except zlib.error:
            return True  # quickly refused
        return member.eof and not member.unused_data

    def unpacked(self, limit: int) -> bytes:
        """Return the bytes of the document; see `gunzip`."""
        return gunzip(self.data, limit) if self.packed else self.data


def by_name(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return a request's headers; one that came twice is the list that it stands for (RFC 9110)."""
    named = dict(headers)
    if len(named) < len(headers):
        named.clear()
        for name, value in headers:
            named[name] = b"%b, %b" % (named[name], value) if name in named else value
    return named


async def read_body(
    headers: Mapping[bytes, bytes],
    receive: Receive,
    limit: int,
    seconds: float,
    take: Callable[[int], None] = lambda size: None,
) -> Body:
    """Return the body of a JSON request.

    Args:
        headers: of the request, by name in lower case.
        receive: the request's next message; see the ASGI specification.
        limit: the most bytes it may have as it comes.
        seconds: the longest it may take to come.
        take: is told how many bytes are about to be kept; may refuse them.

    Raises:
        UnsupportedMedia: it is not JSON in UTF-8, or is packed in another way than gzip.
        TooLarge: it is over the limit; found out before more than that is kept.
        Unavailable: it takes longer; it may be sent again.
        ClientDisconnect: the client went away before the end.
    """
    packed = is_packed(headers)
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(seconds):
            return Body(await _gather(receive, limit, take), packed)
    except TimeoutError as error:
        raise Unavailable(f"the body did not come within {seconds:g} seconds") from error


def is_packed(headers: Mapping[bytes, bytes]) -> bool:
    """Whether gzip packed the body of a JSON request.

    Raises:
        UnsupportedMedia: it is not JSON in UTF-8, or is packed in another way.
    """
    _check_type(headers.get(b"content-type", b"").decode("latin-1"))
    return _says_gzip(headers.get(b"content-encoding", b"").decode("latin-1"))


async def _gather(receive: Receive, limit: int, take: Callable[[int], None]) -> bytes:
    gathered: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        take(len(chunk))
        gathered.append(chunk)
        more = message.get("more_body", False)
    return gathered[0] if len(gathered) == 1 else b"".join(gathered)


def gunzip(packed: bytes, limit: int) -> bytes:
    """Return what gzip packed, in one member or several.

    Raises:
        TooLarge: it unpacks to more than `limit` bytes; no more than that is unpacked.
        MalformedBody: it is not gzip, or cut off.
    """
    unpacked: list[bytes] = []
    room, position = limit, 0
    for _ in range(MAX_MEMBERS):
        parts, position = _one_member(memoryview(packed), position, room)
        unpacked += parts
        room -= sum(map(len, parts))
        if position == len(packed):
            return b"".join(unpacked)
    raise TooLarge(f"the gzip body has more than {MAX_MEMBERS} members")


def _one_member(packed: memoryview, position: int, room: int) -> tuple[list[bytes], int]:
    """Return what a member that begins at a position holds, and where it ends."""
    member = zlib.decompressobj(GZIP)
    parts: list[bytes] = []
    while not member.eof:
        if position >= len(packed):
            raise MalformedBody("the gzip body is cut off")
        try:
            # One byte over the limit is enough to know, and 0 would mean no bound.
            part = member.decompress(packed[position : position + STEP], room + 1)
        except zlib.error as error:
            raise MalformedBody("the body is not gzip, though its encoding says so") from error
        room -= len(part)
        if room < 0:
            raise TooLarge("the body unpacks to more than is allowed")
        parts.append(part)
        position = min(position + STEP, len(packed))
    return parts, position - len(member.unused_data)


def _check_type(content_type: str) -> None:
    if content_type == "application/json":
        return
    message = Message()
    message["content-type"] = content_type
    charset = str(message.get_param("charset", "utf-8")).lower()
    # A missing header reads as text/plain here, which is refused as well.
    if message.get_content_type() != "application/json" or charset not in ("utf-8", "utf8"):
        shown = repr(content_type) if content_type else "missing"
        raise UnsupportedMedia(f"the content type must be application/json; it is {shown}")


def _says_gzip(content_encoding: str) -> bool:
    if not content_encoding:
        return False
    encoding = content_encoding.strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise UnsupportedMedia(f"the content encoding must be gzip or none, not {encoding!r}")
    return encoding in ("gzip", "x-gzip")


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is over {limit} bytes")
