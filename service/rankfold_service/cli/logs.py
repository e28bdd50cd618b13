"""How the aggregator logs: one line per event on standard error, as JSON or as text."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# What every record has; whatever else is on one was given by its caller as `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class JsonLines(logging.Formatter):
    """A JSON object per line: time, level, logger, message, and what the caller added."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= added(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """A line that people read, with what the caller added at its end."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return a record's line, without its traceback."""
        words = [f"{name}={value}" for name, value in added(record).items()]
        return " ".join([super().formatMessage(record), *words])


def added(record: logging.LogRecord) -> dict[str, Any]:
    """Return what a record's caller gave as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def configure_logging(level: str, form: str) -> None:
    """Send everything from a level on to standard error, as `json` or `text`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # The server's own remarks on its coming and going say nothing that ours do not.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.root.level))
