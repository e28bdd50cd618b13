"""Log lines are one event each, for programs or for people, and hold no password."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from rankfold_service.cli.logs import JsonLines, TextLines, configure_logging


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root, server = logging.getLogger(), logging.getLogger("uvicorn.error")
    handlers, levels = root.handlers[:], (root.level, server.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    server.setLevel(levels[1])


def record(**extra: object) -> logging.LogRecord:
    """Return a record of a known time."""
    made = logging.getLogger("rankfold.test").makeRecord(
        "rankfold.test", logging.WARNING, "", 0, "%d left\nover", (3,), None, extra=extra
    )
    made.created = 1_764_600_000.25
    return made


def test_json_lines_hold_the_message_and_what_was_added() -> None:
    """A line is one JSON object, whatever is in the message."""
    line = JsonLines().format(record(request_id="r-1", where=ValueError("odd")))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2025-12-01T14:40:00.250+00:00",
        "level": "warning",
        "logger": "rankfold.test",
        "message": "3 left\nover",
        "request_id": "r-1",
        "where": "odd",
    }


def test_json_lines_hold_a_traceback_in_one_line() -> None:
    """An exception does not spread over lines."""
    failed = record()
    try:
        raise ValueError("broken")
    except ValueError as error:
        failed.exc_info = (ValueError, error, error.__traceback__)
    line = JsonLines().format(failed)
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ValueError: broken")


def test_text_lines_end_with_what_was_added() -> None:
    """People read the same in another form."""
    line = TextLines().format(record(request_id="r-1"))
    assert line.endswith("WARNING rankfold.test: 3 left\nover request_id=r-1")


@pytest.mark.parametrize(
    ("form", "expected"), [("json", '"message": "hello"'), ("text", "INFO rankfold.test: hello")]
)
def test_configure_logging_sends_lines_to_standard_error(
    capsys: pytest.CaptureFixture[str], form: str, expected: str
) -> None:
    """What is below the level is left out, as is the server's chatter."""
    configure_logging("info", form)
    logging.getLogger("rankfold.test").info("hello")
    logging.getLogger("rankfold.test").debug("not this")
    logging.getLogger("uvicorn.error").info("nor this")
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), expected in err) == ("", 1, True)
