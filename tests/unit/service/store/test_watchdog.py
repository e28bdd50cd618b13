"""A connection whose server is silent for too long sees its end."""

from __future__ import annotations

import socket
import threading

import pytest

from rankfold_service.store.postgres import watchdog
from rankfold_service.store.postgres.watchdog import Watchdog


@pytest.fixture
def dog(monkeypatch: pytest.MonkeyPatch) -> Watchdog:
    """Return one that looks often."""
    monkeypatch.setattr(watchdog, "GLANCE_SECONDS", 0.01)
    return Watchdog()


def test_watchdog_ends_what_takes_too_long(dog: Watchdog) -> None:
    """Who waits at the socket is woken with its end, and the socket stays theirs to close."""
    mine, silent = socket.socketpair()
    with mine, silent:
        with dog.over(mine.fileno(), 0.05):
            assert mine.recv(1) == b""
        assert mine.fileno() >= 0
    dog.close()


def test_watchdog_leaves_alone_what_has_ended_in_time(dog: Watchdog) -> None:
    """A connection that nothing is done over may be silent for ever."""
    mine, other = socket.socketpair()
    with mine, other:
        with dog.over(mine.fileno(), 0.02):
            pass
        threading.Event().wait(0.1)
        other.sendall(b"x")
        assert mine.recv(1) == b"x"
    dog.close()


def test_watchdog_outlives_a_socket_that_is_gone(dog: Watchdog) -> None:
    """It goes on to the next connection."""
    mine, other = socket.socketpair()
    number = mine.fileno()
    mine.close()
    other.close()
    with dog.over(number, 0.01):
        threading.Event().wait(0.1)
    test_watchdog_ends_what_takes_too_long(dog)
