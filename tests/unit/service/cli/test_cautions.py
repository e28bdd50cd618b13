"""What the aggregator warns of at its start is told from what is in order."""

from __future__ import annotations

import pytest

from rankfold_service.cli.cautions import open_to_others, unknown_variables
from rankfold_service.cli.listening import bound


def test_unknown_variables_are_named_with_what_was_meant() -> None:
    """Only what looks like a setting is looked at; what is like nothing gets no guess."""
    assert list(unknown_variables(["RANKFOLD_TOKNS", "RANKFOLD_QQQ", "PATH", "XRANKFOLD_URL"])) == [
        "RANKFOLD_QQQ is no setting and is ignored",
        "RANKFOLD_TOKNS is no setting and is ignored: did you mean RANKFOLD_TOKENS?",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "RANKFOLD_LISTEN",
        "RANKFOLD_STALE_AFTER",
        "RANKFOLD_URL",
        "RANKFOLD_TOKEN",
        "RANKFOLD_PROJECT",
        "RANKFOLD_ATTEMPT",
        "RANKFOLD_SPOOL_DIR",
        "RANKFOLD_SPOOL_BYTES",
        "RANKFOLD_SERVICE_HOST",
        "RANKFOLD_SERVICE_PORT_HTTP",
        "RANKFOLD_PORT",
        "RANKFOLD_PORT_9814_TCP_ADDR",
    ],
)
def test_unknown_variables_leave_known_ones_alone(name: str) -> None:
    """Settings, the client's variables, and those that a cluster sets by itself are in order."""
    assert list(unknown_variables([name])) == []


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)],  # noqa: S104 - asked about
)
def test_open_to_others_is_what_is_no_loopback(host: str, expected: bool) -> None:
    """Only this machine reaches a loopback address."""
    with bound(host, 0) as listener:
        assert open_to_others(listener) is expected
