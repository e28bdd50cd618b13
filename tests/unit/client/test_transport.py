from __future__ import annotations

import contextlib
import gzip
import json
import random
import re
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator

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
from rankfold.wire import UNSERVED, Receipt
from rankfold_client.exchange import READ_BYTES
from rankfold_client.transport import (
    MOST_RECEIPT,
    MOST_RETRY_AFTER,
    HttpTransport,
    packed,
    seconds_until,
    translated,
)
from support import unruly
from support.unruly import Unruly, Visit, answering, http

# 1994-11-06 08:49:37 GMT, RFC 9110's own example.
EXAMPLE_DATE, EXAMPLE_TIME = "Sun, 06 Nov 1994 08:49:37 GMT", 784111777.0
RECEIPT = {"accepted": 3, "duplicates": 2, "conflicts": 1}
FINISHED = {"project": "p", "run": "r", "attempt": 4, "finished": True}


@contextlib.contextmanager
def serving(*answers: bytes, token: str | None = None) -> Iterator[tuple[HttpTransport, Unruly]]:
    """Yield a transport to a server that answers so, and the server."""
    with Unruly(answering(*answers)) as server:
        transport = HttpTransport(f"{server.url}/base/", token, 5.0)
        yield transport, server
        transport.close()


def split(request: bytes) -> tuple[bytes, dict[str, str], bytes]:
    """Return a request's first line, its headers and its body."""
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    return first, dict(line.decode().split(": ", 1) for line in lines), body


def test_transport_posts_a_report_and_reads_its_receipt() -> None:
    """A report goes to the contract's path as JSON with the token, and the receipt comes back."""
    with serving(http(200, RECEIPT), token="secret") as (transport, server):  # noqa: S106
        told = transport.report(b'{"run": "r"}', 6)
    assert told == Receipt(accepted=3, duplicates=2, conflicts=1)
    first, headers, body = split(server.received[0])
    assert first == b"POST /base/api/v1/partials HTTP/1.1"
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Content-Type"] == "application/json"
    assert "Content-Encoding" not in headers
    assert body == b'{"run": "r"}'


def test_transport_keeps_its_connection() -> None:
    """Reports follow one another on one connection."""
    with serving(http(200, RECEIPT)) as (transport, server):
        for _ in range(3):
            transport.report(b"{}", 6)
    assert (len(server.received), server.visits) == (3, 1)


def test_transport_notices_a_connection_that_was_closed_meanwhile() -> None:
    """What a server closed while nothing was sent costs no failure."""
    closed = threading.Event()

    def behave(visit: Visit) -> None:
        visit.read()
        visit.send(http(200, RECEIPT))
        visit.sock.shutdown(socket.SHUT_RDWR)
        closed.set()

    with Unruly(behave) as server:
        transport = HttpTransport(server.url)
        for _ in range(3):
            transport.report(b"{}", 6)
            assert closed.wait(5.0)
            closed.clear()
        transport.close()
    assert server.visits == 3


def test_transport_compresses_large_reports_to_the_same_bytes() -> None:
    """A large body is gzipped, and sending it again gives the same bytes."""
    body = json.dumps({"run": "r" * 10_000}).encode()
    with serving(http(200, RECEIPT)) as (transport, server):
        transport.report(body, 6)
        transport.report(body, 6)
    assert server.received[0] == server.received[1]
    _, headers, sent = split(server.received[0])
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(sent) == body
    assert "Authorization" not in headers


def test_transport_sends_digits_as_they_are() -> None:
    """What takes long to compress and shrinks little travels plain."""
    chance = random.Random(0)
    body = json.dumps([chance.random() for _ in range(1000)]).encode()
    assert packed(body) == (body, {})


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
    with serving(http(200, FINISHED | {"run": run})) as (transport, server):
        transport.finish("p", run, 4)
    first, _, body = split(server.received[0])
    assert first.split()[1] == b"/base/api/v1/projects/p/runs/" + path + b"/finish"
    assert json.loads(body) == {"attempt": 4}


@pytest.mark.parametrize(
    "told", [b"<html>log in</html>", {}, [1], FINISHED | {"run": "other"}, {"finished": True}]
)
def test_transport_takes_no_word_of_a_finish_from_what_is_no_aggregator(told: object) -> None:
    """An attempt is finished where the answer says so of this one."""
    with serving(http(200, told)) as (transport, _), pytest.raises(Unreachable, match="no aggreg"):
        transport.finish("p", "r", 4)


def test_transport_reads_what_a_query_asks_for() -> None:
    """A list is a parameter for each of its items, and what is None is left out."""
    with serving(http(200, {"x": 1}), token="secret") as (transport, server):  # noqa: S106
        query = {"key": ["a/b", "c d"], "from": 3, "to": None}
        assert transport.read("/gate", query, 5.0) == {"x": 1}
        assert transport.read("/gate", {}, 5.0) == {"x": 1}
    told = [split(request)[0].split()[:2] for request in server.received]
    assert told == [[b"GET", b"/base/gate?key=a%2Fb&key=c+d&from=3"], [b"GET", b"/base/gate"]]
    assert split(server.received[0])[1]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    "told",
    [
        http(200, b"<html>log in</html>"),
        http(200, [1]),
        http(200, {"accepted": 1}),
        http(200, RECEIPT | {"conflicts": "0"}),
        http(200, RECEIPT | {"conflicts": True}),
        http(200, RECEIPT | {"accepted": 4}),
        http(200, RECEIPT | {"duplicates": 0}),
        http(200, RECEIPT | {"accepted": 6, "duplicates": -1}),
        http(200, dict.fromkeys(RECEIPT, 0)),
        http(200, b"[" * 60_000),
        http(200, b" " * (MOST_RECEIPT + 1)),
        http(302, b"", "Location: http://elsewhere"),
        http(204),
    ],
)
def test_transport_takes_no_receipt_from_what_is_no_aggregator(told: bytes) -> None:
    """An answer that is none is as good as no answer: it is asked again."""
    with serving(told) as (transport, _), pytest.raises(Unreachable, match="no aggregator"):
        transport.report(b"{}", 6)


@pytest.mark.parametrize(
    ("behave", "words"),
    [
        (unruly.close_at_once, "RemoteDisconnected|ConnectionResetError|BrokenPipeError"),
        (unruly.reset, "ConnectionResetError"),
        (unruly.hang, "TimeoutError"),
        (unruly.trickle_head, "TimeoutError"),
        (unruly.trickle_body, "TimeoutError"),
        (unruly.flood_body, "no aggregator"),
        (unruly.flood_chunks, "far too long"),
        (unruly.flood_headers, "HTTPException: got more than 100 headers"),
        (unruly.flood_interim, "far too long"),
        (unruly.lie_about_length, "cut short by"),
        (unruly.lie_about_chunk, "IncompleteRead"),
        (unruly.redirect_to_itself, "no aggregator: status 307"),
        (unruly.answering(b"nonsense\r\n\r\n"), "BadStatusLine"),
        (unruly.answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"), "timed out"),
    ],
)
def test_transport_translates_every_failure_of_the_network(
    behave: unruly.Behaviour, words: str
) -> None:
    """Whatever a server does, the call comes back in its time as Unreachable and says why."""
    with Unruly(behave) as server:
        transport = HttpTransport(server.url, timeout=0.1)
        with pytest.raises(Unreachable, match=words):
            transport.report(b"{}", 6)
        transport.close()


@pytest.mark.parametrize("seed", range(60))
def test_transport_outlives_nonsense(seed: int) -> None:
    """Bytes at random are an error of ours or, where they happen to be one, a receipt."""
    with Unruly(unruly.nonsense(seed)) as server:
        transport = HttpTransport(server.url, timeout=0.5)
        with contextlib.suppress(RankfoldError):
            transport.report(b"{}", 6)
        transport.close()
    assert len(server.received) == 1


def test_transport_pauses_while_it_reads() -> None:
    """A long answer is read in pieces, so that training comes to its turn between them."""
    pauses: list[None] = []
    with Unruly(answering(http(200, b" " * MOST_RECEIPT))) as server:
        transport = HttpTransport(server.url, pause=lambda: pauses.append(None))
        with pytest.raises(Unreachable):
            transport.report(b"{}", 6)
        transport.close()
    assert len(pauses) >= MOST_RECEIPT // READ_BYTES


def test_transport_says_that_nobody_is_there() -> None:
    """An address where nothing listens is named."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(Unreachable, match=f"http://127.0.0.1:{port}: ConnectionRefusedError"):
        HttpTransport(f"http://127.0.0.1:{port}").report(b"{}", 6)


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Forget the proxies of this machine."""
    for scheme in ("http", "https", "all", "no"):
        for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper()):
            monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "inside"])
def test_transport_takes_no_proxy_to_this_machine(
    host: str, no_proxies: pytest.MonkeyPatch
) -> None:
    """A proxy that the environment names is asked for other machines only."""
    with Unruly(answering(http(200, RECEIPT))) as proxy:
        no_proxies.setenv("http_proxy", proxy.url)
        no_proxies.setenv("no_proxy", "inside")
        transport = HttpTransport(f"http://{host}:9", timeout=0.2)
        with pytest.raises(Unreachable, match=re.escape(f"http://{host}:9: ")):
            transport.report(b"{}", 6)
    assert proxy.visits == 0


@pytest.mark.parametrize(
    ("variable", "url", "seen"),
    [
        ("http_proxy", "http://aggregator/x", "http://aggregator:80/x/api/v1/partials"),
        ("all_proxy", "http://[fd00::1]:7", "http://[fd00::1]:7/api/v1/partials"),
    ],
)
def test_transport_goes_by_the_environments_proxy(
    variable: str, url: str, seen: str, no_proxies: pytest.MonkeyPatch
) -> None:
    """The proxy is told the whole address, and its own name and password."""
    with Unruly(answering(http(200, RECEIPT))) as proxy:
        no_proxies.setenv(variable, proxy.url.replace("http://", "http://me:p%40ss@"))
        transport = HttpTransport(url)
        assert transport.report(b"{}", 6).accepted == 3
        transport.close()
    first, headers, _ = split(proxy.received[0])
    assert first.split()[1].decode() == seen
    assert headers["Host"] == seen.split("/")[2]
    assert headers["Proxy-Authorization"] == "Basic " + b64encode(b"me:p@ss").decode()


def test_transport_tunnels_to_https(no_proxies: pytest.MonkeyPatch) -> None:
    """What is encrypted goes through the proxy unread; one that refuses is told."""
    with Unruly(answering(http(403))) as proxy:
        no_proxies.setenv("https_proxy", proxy.url)
        transport = HttpTransport("https://aggregator")
        with pytest.raises(Unreachable, match=r"https://aggregator: OSError: Tunnel .* 403"):
            transport.report(b"{}", 6)
    assert proxy.received[0].startswith(b"CONNECT aggregator:443 HTTP/1.")


@pytest.mark.parametrize(
    "url", ["http://me:s3cret/x@host", "http://me:s3cret@host:port", "ftp://me:s3cret@host"]
)
@pytest.mark.parametrize("of", ["url", "proxy"])
def test_transport_says_no_password_of_an_address_that_cannot_be(
    of: str, url: str, no_proxies: pytest.MonkeyPatch
) -> None:
    """A log is read by others than those who may know it."""
    no_proxies.setenv("http_proxy", url if of == "proxy" else "")
    with pytest.raises(ValueError, match=of) as caught:
        HttpTransport(url if of == "url" else "http://aggregator", None)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("proxy", ["socks5://a:1", "https://a", "http://", "http://[::1"])
def test_transport_refuses_a_proxy_that_it_cannot_use(
    proxy: str, no_proxies: pytest.MonkeyPatch
) -> None:
    """It is told at the start, and not when reports are lost."""
    no_proxies.setenv("all_proxy", proxy)
    with pytest.raises(ValueError, match="proxy"):
        HttpTransport("http://aggregator")


@pytest.mark.parametrize("status", [302, 401, 429, 503])
def test_transport_errors_name_the_address_without_its_password(status: int) -> None:
    """Whatever answers, an error says where it was asked, and tells no secret."""
    with Unruly(answering(http(status, {"detail": "why"}))) as server:
        address = server.url.replace("http://", "http://me:secret@") + "/base/"
        transport = HttpTransport(address)
        with pytest.raises(RankfoldError) as caught:
            transport.report(b"{}", 6)
        transport.close()
    assert str(caught.value).startswith(f"{server.url}/base: ")
    assert "secret" not in str(caught.value)
    credentials = b64encode(b"me:secret").decode()
    assert split(server.received[0])[1]["Authorization"] == f"Basic {credentials}"


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
    error = translated(status, None, {"code": "x"}, 0.0)
    assert type(error) is kind
    assert str(status) in str(error)


@pytest.mark.parametrize("status", [400, 404, 405])
def test_what_only_a_proxy_says_is_sent_again(status: int) -> None:
    """While an aggregator is away, what stands before it may have an answer of its own."""
    assert type(translated(status, None, {}, 0.0)) is Unreachable


def test_errors_keep_the_problem_documents_words() -> None:
    """The detail, the pointers and the time to wait come from the answer."""
    red = translated(400, None, {"detail": "\x1b[31mred", "code": "x"}, 0.0)
    assert str(red) == "\ufffd[31mred"
    refused = translated(401, None, {"detail": "no token", "title": "x"}, 0.0)
    assert str(refused) == "no token; here it comes from token= or RANKFOLD_TOKEN"
    foreign = translated(403, None, {"detail": "for one project", "code": "x"}, 0.0)
    assert "for one project; the project comes from project= or RANKFOLD_PROJECT" in str(foreign)
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


@pytest.mark.parametrize(
    "url",
    [
        *("aggregator:9814", "ftp://a", "", "http://", "http://[::1", "/x", "http://a:0"),
        *("http://a:x", "http://a b", "http://a:99999"),
    ],
)
def test_transport_refuses_what_is_no_address(url: str) -> None:
    """An address that cannot be reached by HTTP is a ValueError that names it."""
    with pytest.raises(ValueError, match="url"):
        HttpTransport(url)


def test_path_at_which_nothing_is_served_is_no_aggregators_address() -> None:
    """A wrong path in an address is waited out like an aggregator that is away: nothing is lost."""
    missing = translated(404, None, {"detail": "no run 'r'", "code": "not_found"}, 0.0, "http://a")
    assert isinstance(missing, NotFound)
    unserved = translated(404, None, {"detail": f"{UNSERVED}; see /docs"}, 0.0, "http://a/x")
    assert isinstance(unserved, Unreachable)
    assert unserved.retryable
    assert str(unserved) == "http://a/x: what answered is no aggregator: status 404"
