"""The reader of the API encodes what it asks, follows pages and raises the errors of the core."""

from __future__ import annotations

import gzip
import socket
from typing import Any

import pytest

from rankfold import errors
from rankfold.answers import (
    GateAnswer,
    ProjectsAnswer,
    RanksAnswer,
    RunsAnswer,
    TotalsAnswer,
    WorstsAnswer,
)
from rankfold_service.cli.api import Api, run_path
from unit.service.cli.canned import CannedAggregator, problem

NOTHING = {"items": [], "next": None}
RANK = {"rank": 0, "attempt": 0, "last_iteration": 0, "last_report": 1.5, "dropped": 0}
RANKS = {"items": [RANK | {"missing": [], "keys": {}}], "missing_until": None, "next": None}


def projects(*names: str, following: str | None = None) -> dict[str, Any]:
    """Return a page of projects."""
    return {"items": [{"project": name, "runs": 1} for name in names], "next": following}


def test_api_percent_encodes_names(aggregator: CannedAggregator, clean_run: dict[str, Any]) -> None:
    """A name with any character reaches the aggregator as one segment."""
    target = "/projects/a%20b/runs/%C3%A9%3F%23%25%2B%26/gate"
    aggregator.answer(target, clean_run)
    with Api(aggregator.url) as api:
        assert api.get(run_path("a b", "é?#%+&", "gate"), GateAnswer) == clean_run
    assert aggregator.requests == [f"/api/v1{target}"]


def test_api_sends_only_what_was_given(aggregator: CannedAggregator) -> None:
    """A parameter that is None is left out, a list is repeated."""
    aggregator.answer("/projects?series=a%2Fb&series=c&from=0", NOTHING)
    with Api(aggregator.url + "/") as api:
        query = {"series": ["a/b", "c"], "from": 0, "to": None}
        assert api.get("/projects", ProjectsAnswer, query) == NOTHING


def test_api_follows_pages_to_the_end(aggregator: CannedAggregator) -> None:
    """All pages become one list, and each is asked for with the `next` of the one before."""
    aggregator.answer("/projects?rank=2", projects("a", "b", following="b/c"))
    aggregator.answer("/projects?rank=2&after=b%2Fc", projects("c"))
    with Api(aggregator.url) as api:
        assert api.pages("/projects", ProjectsAnswer, {"rank": 2}) == projects("a", "b", "c")


def test_api_asks_for_no_more_than_is_wanted(
    aggregator: CannedAggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No page is larger than allowed, and none goes beyond the items that are wanted."""
    monkeypatch.setattr("rankfold_service.cli.api.LARGEST_PAGE", 2)
    aggregator.answer("/projects?limit=2", projects("a", "b", following="b"))
    aggregator.answer("/projects?limit=1&after=b", projects("c", following="c"))
    with Api(aggregator.url) as api:
        first = api.pages("/projects", ProjectsAnswer, most=3)
    assert first == projects("a", "b", "c", following="c")


@pytest.mark.parametrize("cursors", ["aa", "abca", "ba"])
def test_api_follows_no_list_in_circles(aggregator: CannedAggregator, cursors: str) -> None:
    """A page that leads back to one before, or to before it, ends the reading."""
    for before, cursor in zip(["", *cursors], cursors, strict=False):
        target = f"/projects?after={before}" if before else "/projects"
        aggregator.answer(target, projects("x", following=cursor))
    with Api(aggregator.url) as api, pytest.raises(errors.Unreachable, match="has no end"):
        api.pages("/projects", ProjectsAnswer)
    assert len(aggregator.requests) == len(cursors)


def test_api_follows_no_page_of_nothing(aggregator: CannedAggregator) -> None:
    """Whoever has nothing to list has no next page either."""
    aggregator.answer("/projects", NOTHING | {"next": "a"})
    with Api(aggregator.url) as api, pytest.raises(errors.Unreachable, match="has no end"):
        api.pages("/projects", ProjectsAnswer)


def test_api_reads_past_a_page_of_damaged_runs(aggregator: CannedAggregator) -> None:
    """They are listed apart, and hide no other."""
    damaged = NOTHING | {"damaged": [{"project": "p", "run": "a"}], "next": "a"}
    aggregator.answer("/projects/p/runs", damaged)
    aggregator.answer("/projects/p/runs?after=a", NOTHING)
    with Api(aggregator.url) as api:
        assert list(api.each_page("/projects/p/runs", RunsAnswer)) == [damaged, NOTHING]


def test_api_takes_no_list_of_more_than_memory_is_for(
    aggregator: CannedAggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cursors that are new for ever come to an end; numbers, which do by themselves, are joined."""
    monkeypatch.setattr("rankfold_service.cli.api.MOST_ITEMS", 3)
    for before, cursor in ((0, 1), (1, 2)):
        name = f"/projects?after=a{before}" if before else "/projects"
        aggregator.answer(name, projects("a", "b", following=f"a{cursor}"))
        number = f"/ranks?after={before}" if before else "/ranks"
        aggregator.answer(number, RANKS | {"items": RANKS["items"] * 2, "next": cursor})
    with Api(aggregator.url) as api:
        with pytest.raises(errors.Unreachable, match="is no aggregator: its list has no end"):
            for _ in api.each_page("/projects", ProjectsAnswer):
                pass
        with pytest.raises(errors.Unreachable, match="lists more than 3 items"):
            api.pages("/ranks", RanksAnswer)


def test_api_keeps_integers_of_any_size(aggregator: CannedAggregator) -> None:
    """Counts beyond 2^53 arrive exactly, and what this version does not know is left as it is."""
    totals = {"project": "p", "run": "r", "attempts": 0, "rank": None, "keys": {}}
    answer = totals | {"heard_of_later": [2**70 + 1]}
    aggregator.answer("/projects", answer)
    with Api(aggregator.url) as api:
        assert api.get("/projects", TotalsAnswer) == answer


def test_api_sends_the_token(aggregator: CannedAggregator) -> None:
    """The token goes where the contract says."""
    aggregator.answer("/projects", NOTHING)
    with Api(aggregator.url, "s3cret") as api:
        api.get("/projects", ProjectsAnswer)
    assert aggregator.headers["Authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "größe"])
def test_api_refuses_a_token_that_no_header_can_carry(token: str) -> None:
    """A token that was pasted wrongly is a matter of configuration."""
    with pytest.raises(errors.ConfigurationError, match="visible ASCII"):
        Api("http://127.0.0.1:1", token)


@pytest.mark.parametrize(
    "url", ["aggregator:9814", "ftp://host", "http://", "http://h:port", "http://h/\udcff"]
)
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
        api.get("/projects", ProjectsAnswer)
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
        api.get("/projects", ProjectsAnswer)


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("soon", 1.0), (None, 1.0)])
def test_api_passes_on_how_long_to_wait(
    aggregator: CannedAggregator, header: str | None, seconds: float
) -> None:
    """Retry-After is kept; without a number it is a second."""
    headers = {} if header is None else {"Retry_After": header}
    aggregator.answer("/projects", problem(429, "overloaded", "too much at once"), 429, **headers)
    with Api(aggregator.url) as api, pytest.raises(errors.Overloaded) as caught:
        api.get("/projects", ProjectsAnswer)
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
        api.get("/projects", ProjectsAnswer)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not JSON"),
        (b'{"items": [], "next": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "nested too deep"),
        (RANKS | {"items": {}}, "/items: "),
        (RANKS | {"items": [1]}, "/items/0: "),
        (RANKS | {"next": "a"}, "/next: "),
        (RANKS | {"items": [RANKS["items"][0] | {"rank": "0"}]}, "/items/0/rank: "),
        (RANKS | {"items": [RANKS["items"][0] | {"rank": True}]}, "/items/0/rank: "),
        (RANKS | {"items": [RANKS["items"][0] | {"keys": {"k": []}}]}, "/items/0/keys/k: "),
        (RANKS | {"items": [RANK]}, "/items/0/missing: Field required"),
        (RANKS | {"later": float("nan")}, "NaN is not a number"),
        (b'{"items": [], "next": null, "later": 1e999}', "1e999, which no double holds"),
        (RANKS | {"later": ["a\ud800b"]}, "lone surrogate"),
    ],
)
def test_api_takes_no_answer_of_another_shape(
    aggregator: CannedAggregator, body: Any, why: str
) -> None:
    """What commands rely on is checked once, where it comes in."""
    aggregator.answer("/ranks", RANKS)
    with Api(aggregator.url) as api:
        assert api.get("/ranks", RanksAnswer) == RANKS
        aggregator.answer("/worse", body)
        with pytest.raises(errors.Unreachable, match=f"no aggregator: .*{why}"):
            api.get("/worse", RanksAnswer)


WORST: dict[str, Any] = {
    **{"series": "s", "attempt": 0, "rank": 0, "iteration": 0, "microbatch": 0},
    **{"position": [0, 1], "a": 0.5, "b": "NaN", "ulp": 0},
}
KEY: dict[str, Any] = {
    **{"value": -1.5, "rule": "sum", "series": "s", "count": 2**70, "valid": 2**70},
    **{"nonfinite": 0, "sum": "-Infinity", "max": -1.5},
}


def totals(**changed: Any) -> dict[str, Any]:
    """Return totals whose one key differs so from a good one."""
    run = {"project": "p", "run": "r", "attempts": "effective", "rank": None}
    return run | {"keys": {"k": KEY | changed}}


def worsts(**changed: Any) -> dict[str, Any]:
    """Return a page of one worst token that differs so from a good one."""
    return {"items": [WORST | changed], "next": None}


@pytest.mark.parametrize(
    ("shape", "good", "bad", "where"),
    [
        (WorstsAnswer, worsts(), worsts(position=[]), "/items/0/position"),
        (WorstsAnswer, worsts(), worsts(position=[1]), "/items/0/position"),
        (WorstsAnswer, worsts(), worsts(position=[1, 2, 3]), "/items/0/position"),
        (WorstsAnswer, worsts(), worsts(position=[0, -1]), "/items/0/position/1"),
        (WorstsAnswer, worsts(a="Infinity"), worsts(a="zz"), "/items/0/a"),
        (WorstsAnswer, worsts(token_id=0), worsts(token_id=-1), "/items/0/token_id"),
        (TotalsAnswer, totals(), totals(count=-1), "/keys/k/count"),
        (TotalsAnswer, totals(valid=None), totals(valid=-1), "/keys/k/valid"),
        (TotalsAnswer, totals(value=2**70), totals(value="inf"), "/keys/k/value"),
        (TotalsAnswer, totals(sum=None), totals(sum="0"), "/keys/k/sum"),
        (TotalsAnswer, totals(weight=0), totals(weight=-1), "/keys/k/weight"),
        (TotalsAnswer, totals(), totals() | {"attempts": "some"}, "/attempts"),
        (TotalsAnswer, totals() | {"attempts": 0}, totals() | {"attempts": -1}, "/attempts"),
        (RanksAnswer, RANKS, RANKS | {"next": -1}, "/next"),
    ],
)
def test_api_takes_no_answer_with_what_cannot_be(
    aggregator: CannedAggregator, shape: type, good: Any, bad: Any, where: str
) -> None:
    """Counts are not negative, positions are pairs, and what is no number is one of three words."""
    aggregator.answer("/good", good)
    aggregator.answer("/bad", bad)
    with Api(aggregator.url) as api:
        assert api.get("/good", shape) == good
        with pytest.raises(errors.Unreachable, match=f"is no aggregator: {where}: "):
            api.get("/bad", shape)


def test_api_takes_no_answer_without_an_end(
    aggregator: CannedAggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many bytes at most, whatever it unpacks to."""
    aggregator.answer("/projects", gzip.compress(bytes(1 << 20)), Content_Encoding="gzip")
    monkeypatch.setattr("rankfold_service.cli.api.MOST_BYTES", 1 << 19)
    with Api(aggregator.url) as api, pytest.raises(errors.Unreachable, match="more than 524,288"):
        api.get("/projects", ProjectsAnswer)


def test_api_takes_no_answer_that_is_compressed_otherwise_than_it_says(
    aggregator: CannedAggregator,
) -> None:
    """A body that cannot be unpacked is no aggregator's."""
    aggregator.answer("/projects", NOTHING, Content_Encoding="gzip")
    with Api(aggregator.url) as api, pytest.raises(errors.Unreachable, match="not compressed"):
        api.get("/projects", ProjectsAnswer)


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
        api.get("/projects", ProjectsAnswer)


@pytest.mark.parametrize(
    "url",
    [
        "http://me:s3cret@127.0.0.1:1",
        "http://me:s3cret@127.0.0.1:99999",
        "http://me:s3cret/x@127.0.0.1",
        "ftp://me:s3cret@127.0.0.1",
        "me:s3cret@127.0.0.1:1",
    ],
)
def test_api_says_no_password(url: str) -> None:
    """What is printed and logged is read by others than those who may know it."""
    with pytest.raises(errors.RankfoldError, match="127") as caught, Api(url) as api:
        api.get("/projects", ProjectsAnswer)
    assert "s3cret" not in str(caught.value)


def test_api_gives_up_on_an_aggregator_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Something that takes the connection and says nothing is not reachable."""
    monkeypatch.setattr("rankfold_service.cli.api.ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with Api(url) as api, pytest.raises(errors.Unreachable, match="did not answer in time"):
            api.get("/projects", ProjectsAnswer)


def test_api_asks_this_machine_without_a_proxy(
    aggregator: CannedAggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy in the environment is for other machines."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    aggregator.answer("/projects", NOTHING)
    with Api(aggregator.url) as api:
        assert api.get("/projects", ProjectsAnswer) == NOTHING
