"""Whatever a peer does, an exchange with it ends."""

from __future__ import annotations

import socket
import time

import pytest

from rankfold import errors
from rankfold.answers import ProjectsAnswer
from rankfold_service.cli.api import Api
from rankfold_service.cli.deadline import Deadline
from support.unruly import HOSTILE, Unruly, Visit, http

PAGE = {"items": [{"project": "p", "runs": 1}], "next": None}


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a third of a second, where commands wait for two minutes."""
    monkeypatch.setattr("rankfold_service.cli.api.EXCHANGE_SECONDS", 0.3)


@pytest.mark.parametrize("how", HOSTILE)
def test_exchange_ends_with_any_peer(how: str) -> None:
    """A head or body that trickles, interim answers, headers or chunks without an end."""
    started = time.monotonic()
    with (
        Unruly(HOSTILE[how]) as peer,
        Api(peer.url) as api,
        pytest.raises(errors.Unreachable, match=r"in time|no aggregator"),
    ):
        api.get("/projects", ProjectsAnswer)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("how", ["hang after reading", "trickle head", "flood interim"])
def test_exchange_that_takes_too_long_is_told_so(how: str) -> None:
    """It was the time that was up; the address may well be right."""
    with (
        Unruly(HOSTILE[how]) as peer,
        Api(peer.url) as api,
        pytest.raises(errors.Unreachable, match="did not answer in time"),
    ):
        api.get("/projects", ProjectsAnswer)


def test_answer_that_was_cut_is_none() -> None:
    """A body of no known length that ends with its connection is not taken for a whole one."""

    def behave(visit: Visit) -> None:
        visit.read()
        visit.send(b"HTTP/1.1 200 x\r\n\r\n" + http(200, PAGE).partition(b"\r\n\r\n")[2])
        visit.wait()

    with (
        Unruly(behave) as peer,
        Api(peer.url) as api,
        pytest.raises(errors.Unreachable, match="did not answer in time"),
    ):
        api.get("/projects", ProjectsAnswer)


def test_time_is_that_of_each_exchange() -> None:
    """A connection that is used for long is not cut for that, and a later one is good again."""

    def behave(visit: Visit) -> None:
        for number in range(6):
            visit.read()
            visit.wait(0.1)
            if number == 5:
                visit.wait()
            visit.send(http(200, PAGE))

    with Unruly(behave) as peer, Api(peer.url) as api:
        for _ in range(5):
            assert api.get("/projects", ProjectsAnswer) == PAGE
        with pytest.raises(errors.Unreachable, match="did not answer in time"):
            api.get("/projects", ProjectsAnswer)
        assert api.get("/projects", ProjectsAnswer) == PAGE
        assert peer.visits == 2


class Stream:
    """What httpx tells of a connection that it made."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def get_extra_info(self, what: str) -> socket.socket:
        """Return the socket."""
        assert what == "socket"
        return self._socket


def test_connection_that_is_made_too_late_is_cut() -> None:
    """Where the time is up before there is a connection, there is no exchange over it."""

    def connect(deadline: Deadline, mine: socket.socket) -> None:
        with deadline.over(0.0):
            time.sleep(0.1)
            deadline.trace("connection.connect_tcp.complete", {"return_value": Stream(mine)})
            assert mine.recv(1) == b""

    mine, other = socket.socketpair()
    with mine, other:
        deadline = Deadline()
        with pytest.raises(TimeoutError):
            connect(deadline, mine)
        deadline.close()
