"""The address that the aggregator listens on: taken early, so that a clash stops it at once."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from rankfold.errors import ConfigurationError


@contextlib.contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that has the address but does not listen yet; port 0 takes a free one.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    try:
        listener = _bind(host, port)
    except OSError as error:
        where = _joined(host, port)
        raise ConfigurationError(
            f"cannot listen on {where} ({error.strerror}): give another with --listen"
        ) from error
    with listener:
        yield listener


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == "::":  # every address, those of IPv4 too
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of a socket, with the port that it really has."""
    host, port = listener.getsockname()[:2]
    return f"http://{_joined(host, port)}"


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
