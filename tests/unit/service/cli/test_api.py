"""The reader of the API encodes what it asks, follows pages and raises the errors of the core."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from rankfold import errors
from rankfold_service.cli.api import Api, run_path
from unit.service.cli.canned import CannedAggregator


def test_api_percent_encodes_names(aggregator: CannedAggregator) -> None:
    """A name with any character reaches the aggregator as one segment."""
    target = "/projects/a%20b/runs/%C3%A9%3F%23%25%2B%26/gate"
    aggregator.answer(target, {"gate": "pass"})
    with Api(aggregator.url) as api:
        assert api.get(run_path("a b", "é?#%+&", "gate")) == {"gate": "pass"}
    assert aggregator.requests == [f"/api/v1{target}"]


def test_api_sends_only_what_was_given(aggregator: CannedAggregator) -> None:
    """A parameter that is None is left out, a list is repeated."""
    aggregator.answer("/projects?series=a%2Fb&series=c&from=0", {"items": [], "next": None})
    with Api(aggregator.url + "/") as api:
        query = {"series": ["a/b", "c"], "from": 0, "to": None}
        assert api.get("/projects", query) == {"items": [], "next": None}


def test_api_follows_pages_to_the_end(aggregator: CannedAggregator) -> None:
    """All pages become one list, and each is asked for with the `next` of the one before."""
    aggregator.answer("/projects?rank=2", {"items": [1, 2], "next": "b/c"})
    aggregator.answer("/projects?rank=2&after=b%2Fc", {"items": [3], "next": None})
    with Api(aggregator.url) as api:
        assert api.pages("/projects", {"rank": 2}) == {"items": [1, 2, 3], "next": None}


def test_api_asks_for_no_more_than_is_wanted(
    aggregator: CannedAggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No page is larger than allowed, and none goes beyond the items that are wanted."""
    monkeypatch.setattr("rankfold_service.cli.api.LARGEST_PAGE", 2)
    aggregator.answer("/projects?limit=2", {"items": [1, 2], "next": 2})
    aggregator.answer("/projects?limit=1&after=2", {"items": [3], "next": 3})
    with Api(aggregator.url) as api:
        assert api.pages("/projects", most=3) == {"items": [1, 2, 3], "next": 3}


def test_api_keeps_integers_of_any_size(aggregator: CannedAggregator) -> None:
    """Counts beyond 2^53 arrive exactly."""
    aggregator.answer("/projects", {"count": 2**70 + 1})
    with Api(aggregator.url) as api:
        assert api.get("/projects") == {"count": 2**70 + 1}


def test_api_sends_the_token(aggregator: CannedAggregator) -> None:
    """The token goes where the contract says."""
    aggregator.answer("/projects", {})
    with Api(aggregator.url, "s3cret") as api:
        api.get("/projects")
    assert aggregator.headers["Authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "größe"])
def test_api_refuses_a_token_that_no_header_can_carry(token: str) -> None:
    """A token that was pasted wrongly is a matter of configuration."""
    with pytest.raises(errors.ConfigurationError, match="visible ASCII"):
        Api("http://127.0.0.1:1", token)


@pytest.mark.parametrize("url", ["aggregator:9814", "ftp://host", "http://", "http://h:port"])
def test_api_refuses_what_is_no_url(url: str) -> None:
    """A URL that cannot be asked is a matter of configuration."""
    with pytest.raises(errors.ConfigurationError, match="is no URL"):
        Api(url)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "malformed_body", errors.MalformedBody),
        (401, "unauthenticated", errors.Unauthenticated),
        (403, "forbidden", errors.Forbidden),
        (404, "not_found", errors.NotFound),
        (418, "heard_of_later", errors.RequestError),
        (429, "overloaded", errors.Overloaded),
        (503, "store_unavailable", errors.StoreUnavailable),
        (500, "internal", errors.RankfoldError),
        (507, "heard_of_later", errors.RankfoldError),
    ],
)
def test_api_raises_the_error_that_a_problem_names(
    aggregator: CannedAggregator, status: int, code: str, kind: type[Exception]
) -> None:
    """The code decides; a code of a later version is judged by its status."""
    aggregator.problem("/projects", status, code, "what happened")
    with Api(aggregator.url) as api, pytest.raises(errors.RankfoldError) as caught:
        api.get("/projects")
    assert (type(caught.value), str(caught.value)) == (kind, "what happened")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"errors": [{"pointer": "/from", "reason": "must not be after to"}]}, "/from: must not"),
        ({}, "/: what happened"),
    ],
)
def test_api_tells_each_fault_of_a_refused_request(
    aggregator: CannedAggregator, more: dict[str, Any], text: str
) -> None:
    """The pointers of a 422 are in the error."""
    aggregator.problem("/projects", 422, "inconsistent", "what happened", **more)
    with Api(aggregator.url) as api, pytest.raises(errors.Inconsistent, match=text):
        api.get("/projects")


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("soon", 1.0), (None, 1.0)])
def test_api_passes_on_how_long_to_wait(
    aggregator: CannedAggregator, header: str | None, seconds: float
) -> None:
    """Retry-After is kept; without a number it is a second."""
    headers = {} if header is None else {"Retry_After": header}
    body = {"code": "overloaded", "detail": "too much at once"}
    aggregator.answer("/projects", body, 429, **headers)
    with Api(aggregator.url) as api, pytest.raises(errors.Overloaded) as caught:
        api.get("/projects")
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (200, b"[]"), (404, b"<html>"), (502, b"{}"), (301, b"")]
)
def test_api_recognises_what_is_no_aggregator(
    aggregator: CannedAggregator, status: int, body: bytes
) -> None:
    """A proxy's page or another service's answer is never taken for an aggregator's."""
    aggregator.answer("/projects", body, status)
    with Api(aggregator.url) as api, pytest.raises(errors.Unreachable, match="no aggregator"):
        api.get("/projects")


@pytest.mark.parametrize("port", [0, 65536, 99999])
def test_api_refuses_a_port_that_is_none(port: int) -> None:
    """Nothing can listen there, so nothing is asked."""
    with pytest.raises(errors.ConfigurationError, match=f"port {port} is not from 1 to 65535"):
        Api(f"http://127.0.0.1:{port}")


def test_api_says_where_nothing_answers() -> None:
    """A refused connection is one error, and it names the address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with (
        Api(url) as api,
        pytest.raises(errors.Unreachable, match=f"no aggregator answers at {url}"),
    ):
        api.get("/projects")


def test_api_gives_up_on_an_aggregator_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Something that takes the connection and says nothing is not reachable."""
    monkeypatch.setattr("rankfold_service.cli.api.ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with Api(url) as api, pytest.raises(errors.Unreachable, match="did not answer in time"):
            api.get("/projects")


def test_api_asks_this_machine_without_a_proxy(
    aggregator: CannedAggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy in the environment is for other machines."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    aggregator.answer("/projects", {})
    with Api(aggregator.url) as api:
        assert api.get("/projects") == {}
