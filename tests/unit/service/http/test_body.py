"""A body is read no further than its limit, packed or not."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from rankfold.errors import MalformedBody, RequestError, TooLarge, Unavailable, UnsupportedMedia
from rankfold_service.http.body import MAX_MEMBERS, STEP, Body, gunzip, read_body

JSON = {b"content-type": b"application/json"}


def arriving(*messages: Message) -> Receive:
    """Return what yields these messages, and then nothing any more."""
    rest = iter(messages)

    async def receive() -> Message:
        for message in rest:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    return receive


def read(headers: dict[bytes, bytes], *chunks: bytes, limit: int = 100) -> bytes:
    """Read a body that arrives in chunks."""
    parts: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks
    ]
    receive = arriving(*parts, {"type": "http.request"})
    return asyncio.run(read_body(headers, receive, limit, 5.0)).unpacked(limit)


def test_read_body_takes_nothing_of_who_went_away() -> None:
    """A body that its sender broke off is no body."""
    receive = arriving({"type": "http.request", "more_body": True}, {"type": "http.disconnect"})
    with pytest.raises(ClientDisconnect):
        asyncio.run(read_body(JSON, receive, 100, 5.0))


def test_read_body_joins_what_arrives() -> None:
    """Chunks are one body, up to and with the limit."""
    assert read(JSON, b"a" * 50, b"", b"b" * 50) == b"a" * 50 + b"b" * 50


def test_read_body_stops_at_the_limit() -> None:
    """What is declared over the limit is not read, and what lies is read no further."""
    with pytest.raises(TooLarge):
        read(JSON, b"a" * 60, b"a" * 41)
    with pytest.raises(TooLarge):
        read({**JSON, b"content-length": b"101"})


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        'Application/JSON; charset="utf8"',
    ],
)
def test_read_body_takes_json_however_it_is_spelt(content_type: str) -> None:
    """JSON in UTF-8 has several spellings."""
    assert read({b"content-type": content_type.encode()}, b"{}") == b"{}"


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "application/json; charset=latin-1",
        "application/jsonp",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "json",
        ";;;",
    ],
)
def test_read_body_refuses_other_types(content_type: str) -> None:
    """Anything but JSON in UTF-8 is not known."""
    with pytest.raises(UnsupportedMedia):
        read({b"content-type": content_type.encode()}, b"{}")
    with pytest.raises(UnsupportedMedia):
        read({}, b"{}")


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd"])
def test_read_body_refuses_other_encodings(encoding: str) -> None:
    """Anything but gzip is not known."""
    with pytest.raises(UnsupportedMedia):
        read({**JSON, b"content-encoding": encoding.encode()}, b"{}")


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "x-gzip"])
def test_read_body_unpacks_gzip(encoding: str) -> None:
    """A packed body is unpacked; `identity` is no packing."""
    assert read({**JSON, b"content-encoding": encoding.encode()}, gzip.compress(b"{}")) == b"{}"
    assert read({**JSON, b"content-encoding": b"identity"}, b"{}") == b"{}"


@given(st.lists(st.binary(max_size=3 * STEP), min_size=1, max_size=4))
def test_gunzip_joins_members(parts: list[bytes]) -> None:
    """Several members one after another are one body."""
    assert gunzip(b"".join(map(gzip.compress, parts)), 12 * STEP) == b"".join(parts)


def test_gunzip_keeps_a_bomb_packed() -> None:
    """What unpacks to far more than is allowed costs no more than that."""
    bomb = gzip.compress(bytes(64 * 1024 * 1024))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            gunzip(bomb, 1024 * 1024)
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_gunzip_stops_at_the_limit_exactly() -> None:
    """The limit itself is allowed, over all members together."""
    packed = gzip.compress(b"a" * 60) + gzip.compress(b"b" * 40)
    assert len(gunzip(packed, 100)) == 100
    with pytest.raises(TooLarge):
        gunzip(packed, 99)


def test_gunzip_refuses_a_bomb_of_members() -> None:
    """Members that hold nothing are bounded in number."""
    with pytest.raises(TooLarge):
        gunzip(gzip.compress(b"") * (MAX_MEMBERS + 1), 100)


@pytest.mark.parametrize("cut", [0, 1, 10, 15, 20])
def test_gunzip_refuses_what_is_cut_off(cut: int) -> None:
    """A body that ends too early is malformed, not short."""
    packed = gzip.compress(b"some text that is long enough")
    with pytest.raises(MalformedBody):
        gunzip(packed[:cut], 100)


@given(st.binary(max_size=100))
def test_gunzip_refuses_other_bytes(junk: bytes) -> None:
    """What is not gzip is malformed, also after a good member."""
    for body in (junk, gzip.compress(b"a") + junk):
        if not body.endswith(gzip.compress(b"a")):
            with pytest.raises(RequestError):
                gunzip(body, 100)


def test_read_body_does_not_wait_for_ever() -> None:
    """A body that stops arriving is given up after the time that it has."""
    receive = arriving({"type": "http.request", "body": b"{", "more_body": True})
    with pytest.raises(Unavailable) as refused:
        asyncio.run(read_body(JSON, receive, 100, 0.01))
    assert refused.value.retryable


@pytest.mark.parametrize(
    ("body", "small"),
    [
        (Body(b"x" * 100, packed=False), True),
        (Body(b"x" * 101, packed=False), False),
        (Body(gzip.compress(b"x" * 100), packed=True), True),
        (Body(gzip.compress(b"x" * 101), packed=True), False),
        (Body(gzip.compress(b"") * 2, packed=True), False),
        (Body(b"no gzip", packed=True), True),
        (Body(gzip.compress(b"x" * 50)[:-4], packed=True), False),
    ],
)
def test_body_is_small_by_what_it_unpacks_to(body: Body, small: bool) -> None:
    """A bomb is told by its first bytes, and never unpacked to find out."""
    assert body.is_small(100) is small
