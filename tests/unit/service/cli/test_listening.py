"""The aggregator takes its address before anything else, or says why it cannot."""

from __future__ import annotations

import socket

import pytest

from rankfold.errors import ConfigurationError
from rankfold_service.cli.listening import bound, url_of


def test_bound_takes_a_free_port_and_names_it() -> None:
    """With port 0 the URL has the port that was really taken."""
    with bound("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert url_of(listener) == f"http://127.0.0.1:{port}"


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
@pytest.mark.parametrize("host", ["::1", "::"])
def test_bound_takes_an_address_of_ipv6(host: str) -> None:
    """Such an address has brackets in a URL."""
    with bound(host, 0) as listener:
        assert url_of(listener) == f"http://[{host}]:{listener.getsockname()[1]}"


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
def test_bound_to_every_address_answers_those_of_ipv4_too() -> None:
    """`[::]` means every address, as people expect."""
    with bound("::", 0) as listener:
        listener.listen()
        with socket.create_connection(("127.0.0.1", listener.getsockname()[1]), timeout=5):
            pass


def test_bound_refuses_an_address_that_is_in_use() -> None:
    """A second aggregator does not start, and the error says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        complaint = (
            rf"cannot listen on 127\.0\.0\.1:{port} \(Address already in use\): give another"
        )
        with pytest.raises(ConfigurationError, match=complaint), bound("127.0.0.1", port):
            pass


def test_bound_refuses_a_host_that_is_not_here() -> None:
    """An address of another machine cannot be taken."""
    with pytest.raises(ConfigurationError, match="cannot listen on"), bound("192.0.2.1", 0):
        pass


def test_bound_gives_the_address_back() -> None:
    """The address is free again afterwards."""
    with bound("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    with bound("127.0.0.1", port) as again:
        assert again.getsockname()[1] == port
