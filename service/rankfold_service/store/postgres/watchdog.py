"""Ends a connection whose server has stopped answering: libpq would wait for it for ever."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator

# How soon silence is noticed once it has lasted too long.
GLANCE_SECONDS = 1.0

_log = logging.getLogger("rankfold.store")


class Watchdog:
    """Shuts a connection's socket when what was begun over it takes too long."""

    def __init__(self) -> None:
        self._until: float | None = None
        self._file = -1
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._watch, name="rankfold-watchdog", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def over(self, file: int, patience: float) -> Iterator[None]:
        """Watch over what is done within.

        Args:
            file: the number of the socket over which it is done.
            patience: seconds that it may take.
        """
        with self._changed:
            self._until, self._file = time.monotonic() + patience, file
        try:
            yield
        finally:
            with self._changed:
                self._until = None

    def close(self) -> None:
        """Stop watching."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _watch(self) -> None:
        with self._changed:
            while not self._closing:
                self._changed.wait(GLANCE_SECONDS)
                if self._until is not None and time.monotonic() > self._until:
                    _log.warning("the database does not answer: its connection is given up")
                    _shut(self._file)
                    self._until = None


def _shut(file: int) -> None:
    """Make who waits at a socket see its end; it stays theirs to close."""
    with contextlib.suppress(OSError):  # it has just ended by itself
        connection = socket.socket(fileno=file)
        try:
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()
