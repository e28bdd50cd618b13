"""One end for a whole exchange: the HTTP library bounds each wait, not all of them together."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any


class Deadline:
    """Cuts a connection off where an exchange over it takes too long, whatever it waits for."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._passed = False

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Learn of a new connection; to be the `trace` of each request to httpx."""
        if event == "connection.connect_tcp.complete":
            self.close()
            # TLS takes the original over; what is shut down by one is shut down for both.
            self._socket = info["return_value"].get_extra_info("socket").dup()
            if self._passed:
                self._cut()

    @contextlib.contextmanager
    def over(self, seconds: float) -> Iterator[None]:
        """Bound what the body does over the connection.

        Raises:
            TimeoutError: it took longer, and whatever came of it is not to be trusted.
        """
        self._passed = False
        timer = threading.Timer(seconds, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception:
            if not self._passed:
                raise
        finally:
            timer.cancel()
        if self._passed:
            raise TimeoutError

    def _cut(self) -> None:
        self._passed = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it has ended already
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
