from __future__ import annotations

import gzip
import json
import re
import socket
from collections.abc import Callable

import httpx
import pytest

from rankfold.errors import (
    FieldError,
    Forbidden,
    Inconsistent,
    MalformedBody,
    NotFound,
    Overloaded,
    RankfoldError,
    RequestError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unreachable,
    UnsupportedMedia,
)
from rankfold.wire import Receipt
from rankfold_client.transport import (
    MOST_ANSWER,
    MOST_RETRY_AFTER,
    HttpTransport,
    seconds_until,
    translated,
)
from unit.client.fakes import Clock

# 1994-11-06 08:49:37 GMT, RFC 9110's own example.
EXAMPLE_DATE, EXAMPLE_TIME = "Sun, 06 Nov 1994 08:49:37 GMT", 784111777.0
RECEIPT = {"accepted": 3, "duplicates": 2, "conflicts": 1}


def answer(
    status: int, body: object = b"", headers: dict[str, str] | None = None
) -> httpx.Response:
    """Return an answer that is still to be read, as from a socket."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(raw))


def transport(
    handler: Callable[[httpx.Request], httpx.Response], token: str | None = None
) -> HttpTransport:
    """Return a transport whose network is a function."""
    return HttpTransport("http://a:1/base/", token, handler=httpx.MockTransport(handler))


def test_transport_posts_a_report_and_reads_its_receipt() -> None:
    """A report goes to the contract's path as JSON with the token, and the receipt comes back."""
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer(200, RECEIPT)

    http = transport(handler, token="secret")  # noqa: S106
    assert http.report(b'{"run": "r"}') == Receipt(accepted=3, duplicates=2, conflicts=1)
    http.close()
    (request,) = seen
    assert (request.method, str(request.url)) == ("POST", "http://a:1/base/api/v1/partials")
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["Content-Type"] == "application/json"
    assert "Content-Encoding" not in request.headers
    assert request.content == b'{"run": "r"}'


def test_transport_compresses_large_reports_to_the_same_bytes() -> None:
    """A large body is gzipped, and sending it again gives the same bytes."""
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer(200, RECEIPT)

    body = json.dumps({"run": "r" * 10_000}).encode()
    http = transport(handler)
    http.report(body)
    http.report(body)
    assert [request.headers["Content-Encoding"] for request in seen] == ["gzip", "gzip"]
    assert seen[0].content == seen[1].content
    assert gzip.decompress(seen[0].content) == body
    assert "Authorization" not in seen[0].headers


@pytest.mark.parametrize(
    ("run", "path"),
    [
        ("plain", b"plain"),
        ("a b%é?#\\", b"a%20b%25%C3%A9%3F%23%5C"),
        ("%2F", b"%252F"),
    ],
)
def test_transport_percent_encodes_names_in_paths(run: str, path: bytes) -> None:
    """Any allowed name reaches the aggregator as one segment of the path."""
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer(200, {})

    transport(handler).finish("p", run, 4)
    (request,) = seen
    assert request.url.raw_path == b"/base/api/v1/projects/p/runs/" + path + b"/finish"
    assert json.loads(request.content) == {"attempt": 4}


@pytest.mark.parametrize(
    "told",
    [
        answer(200, b"<html>log in</html>"),
        answer(200, [1]),
        answer(200, {"accepted": 1}),
        answer(200, RECEIPT | {"conflicts": "0"}),
        answer(200, b"[" * 100_000),
        answer(200, b" " * (MOST_ANSWER + 1)),
        answer(302, headers={"Location": "http://elsewhere"}),
        answer(204),
    ],
)
def test_transport_takes_no_receipt_from_what_is_no_aggregator(told: httpx.Response) -> None:
    """An answer that is none is as good as no answer: it is asked again."""
    with pytest.raises(Unreachable, match="no aggregator"):
        transport(lambda _: told).report(b"{}")


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("nonsense"),
        httpx.ProxyError("proxy"),
        OSError("no route"),
    ],
)
def test_transport_translates_every_failure_of_the_network(error: Exception) -> None:
    """Nothing of httpx passes through: it is Unreachable and says why."""

    def handler(_: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(Unreachable, match=f"{type(error).__name__}: {error}"):
        transport(handler).report(b"{}")


@pytest.mark.parametrize(
    ("host", "proxied"),
    [("127.0.0.1", False), ("localhost", False), ("[::1]", False), ("aggregator", True)],
)
def test_transport_takes_no_proxy_to_this_machine(
    host: str, proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that the environment names is asked for other machines only."""
    with (
        socket.create_server(("127.0.0.1", 0)) as proxy,
        socket.create_server(("127.0.0.1", 0)) as gone,
    ):
        port = gone.getsockname()[1]
        gone.close()
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        proxy.settimeout(0.0)
        http = HttpTransport(f"http://{host}:{port}", timeout=0.2)
        with pytest.raises(Unreachable, match=re.escape(f"http://{host}:{port}: ")):
            http.report(b"{}")
        http.close()
        if proxied:
            proxy.accept()[0].close()
        else:
            with pytest.raises(BlockingIOError):
                proxy.accept()


@pytest.mark.parametrize("status", [302, 401, 429, 503])
def test_transport_errors_name_the_address_without_its_password(status: int) -> None:
    """Whatever answers, an error says where it was asked, and tells no secret."""
    network = httpx.MockTransport(lambda _: answer(status, {"detail": "why"}))
    http = HttpTransport("http://me:secret@a:1/base/", handler=network)
    with pytest.raises(RankfoldError) as caught:
        http.report(b"{}")
    assert str(caught.value).startswith("http://a:1/base: ")
    assert "secret" not in str(caught.value)


def test_transport_does_not_follow_an_answer_for_ever() -> None:
    """An answer that trickles is given up after three timeouts."""
    clock = Clock()

    class Trickle(httpx.SyncByteStream):
        def __iter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
            while True:
                clock.now += 9.0
                yield b" "

    http = HttpTransport(
        "http://a",
        timeout=10.0,
        clock=clock,
        handler=httpx.MockTransport(lambda _: httpx.Response(200, stream=Trickle())),
    )
    with pytest.raises(Unreachable, match="too long"):
        http.report(b"{}")
    assert clock.now == 1000.0 + 36.0


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, MalformedBody),
        (401, Unauthenticated),
        (403, Forbidden),
        (404, NotFound),
        (405, RequestError),
        (408, Unavailable),
        (413, TooLarge),
        (415, UnsupportedMedia),
        (422, Inconsistent),
        (425, Unavailable),
        (429, Overloaded),
        (500, Unavailable),
        (502, Unavailable),
        (503, Unavailable),
        (599, Unavailable),
        (101, Unreachable),
        (307, Unreachable),
    ],
)
def test_every_status_is_one_error(status: int, kind: type[RankfoldError]) -> None:
    """A status decides what is wrong and, with it, whether to send again."""
    error = translated(status, None, {}, 0.0)
    assert type(error) is kind
    assert str(status) in str(error)


def test_errors_keep_the_problem_documents_words() -> None:
    """The detail, the pointers and the time to wait come from the answer."""
    refused = translated(401, None, {"detail": "no token", "title": "x"}, 0.0)
    assert str(refused) == "no token"
    fields = {"errors": [{"pointer": "/partials/0/count", "reason": "over valid"}, "odd"]}
    wrong = translated(422, None, fields, 0.0)
    assert isinstance(wrong, Inconsistent)
    assert wrong.errors == [FieldError("/partials/0/count", "over valid")]
    busy = translated(503, "7", {"title": "not now"}, 0.0)
    assert isinstance(busy, Unavailable)
    assert (str(busy), busy.retry_after) == ("not now", 7.0)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0.0),
        ("7", 7.0),
        (" 0 ", 0.0),
        (EXAMPLE_DATE, 30.0),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0.0),
        ("Sun, 06 Nov 2094 08:00:00 GMT", MOST_RETRY_AFTER),
        ("999999999999", MOST_RETRY_AFTER),
        ("soon", 0.0),
        ("-5", 0.0),
        ("1.5", 0.0),
        ("", 0.0),
        ("Sun, 99 Nov 1994 08:49:37 GMT", 0.0),
    ],
)
def test_retry_after_is_read_in_both_forms(header: str | None, seconds: float) -> None:
    """Seconds and dates are read; anything else asks for nothing; nothing asks for hours."""
    assert seconds_until(header, EXAMPLE_TIME - 30.0) == seconds


@pytest.mark.parametrize("url", ["aggregator:9814", "ftp://a", "", "http://", "http://[::1", "/x"])
def test_transport_refuses_what_is_no_address(url: str) -> None:
    """An address that cannot be reached by HTTP is a ValueError that names it."""
    with pytest.raises(ValueError, match="url"):
        HttpTransport(url)
