"""Every setting of the aggregator, once: its name, default, meaning and how it is read."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from rankfold.errors import ConfigurationError
from rankfold.wire import MAX_BODY, MAX_ITEMS

PREFIX = "RANKFOLD_"


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be HOST:PORT, such as 127.0.0.1:9814 or [::]:9814")
    return text


def _store(text: str) -> str:
    if "://" not in text:
        raise ValueError("must be a URL, such as sqlite:///rankfold.db")
    return text


def _path(text: str) -> Path:
    if not text:
        raise ValueError("must be the path of a file")
    return Path(text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError("must be a finite number of seconds, at least 0")
    return seconds


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("must be at least 1")
    return number


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text.lower()

    return parse


def _how(parse: Callable[[str], Any], metavar: str, describe: str) -> dict[str, Any]:
    """Return how a setting's text is read and what it means."""
    return {"parse": parse, "metavar": metavar, "help": describe}


@dataclass(frozen=True)
class Settings:
    """The settings of one aggregator; each is a flag, and an environment variable."""

    listen: str = field(
        default="127.0.0.1:9814",
        metadata=_how(_address, "HOST:PORT", "where to listen; port 0 takes a free one"),
    )
    store: str = field(
        default="sqlite:///rankfold.db",
        metadata=_how(
            _store, "URL", "where runs are kept: sqlite:///PATH, postgresql://... or memory://"
        ),
    )
    rules: Path | None = field(default=None, metadata=_how(_path, "FILE", "rules file (TOML)"))
    tokens: Path | None = field(
        default=None,
        metadata=_how(_path, "FILE", "tokens file (TOML); without one, anybody may do everything"),
    )
    stale_after: float = field(
        default=3600.0,
        metadata=_how(_seconds, "SECONDS", "silence after which a running run is stale"),
    )
    finished_leave_after: float = field(
        default=3600.0,
        metadata=_how(
            _seconds, "SECONDS", "how long after its last report a finished run leaves /metrics"
        ),
    )
    stale_leave_after: float = field(
        default=86400.0,
        metadata=_how(
            _seconds, "SECONDS", "how long after its last report a stale run leaves /metrics"
        ),
    )
    max_body: int = field(
        default=MAX_BODY,
        metadata=_how(_positive, "BYTES", "largest body, as sent and as unpacked; 413 beyond"),
    )
    body_timeout: float = field(
        default=30.0,
        metadata=_how(_seconds, "SECONDS", "longest that a body may take to arrive; 503 beyond"),
    )
    max_items: int = field(
        default=MAX_ITEMS, metadata=_how(_positive, "N", "longest list in one report; 413 beyond")
    )
    max_in_flight: int = field(
        default=64 * 1024 * 1024,
        metadata=_how(_positive, "BYTES", "bodies that are worked on at once; 429 beyond"),
    )
    queue_limit: int = field(
        default=4096,
        metadata=_how(_positive, "N", "reports that may wait for a commit; 429 beyond"),
    )
    max_wait: float = field(
        default=5.0,
        metadata=_how(
            _seconds, "SECONDS", "how long the oldest waiting report may have waited; 503 beyond"
        ),
    )
    scrape_cache: float = field(
        default=0.0,
        metadata=_how(
            _seconds, "SECONDS", "how long a rendered scrape answers further ones; 0 for none"
        ),
    )
    keep_iterations: int = field(
        default=16,
        metadata=_how(
            _positive, "N", "newest iterations of each attempt that are kept by microbatch"
        ),
    )
    checkpoint_bytes: int = field(
        default=2 * 1024 * 1024,
        metadata=_how(
            _positive, "BYTES", "bytes of the store's journal from one save of a run to the next"
        ),
    )
    retain_age: float | None = field(
        default=None,
        metadata=_how(
            _seconds,
            "SECONDS",
            "how long after its last report a finished or stale run is deleted, which is looked "
            "for at the start and then every 60 s; a running one never is; none keeps all",
        ),
    )
    retain_bytes: int | None = field(
        default=None,
        metadata=_how(
            _positive,
            "BYTES",
            "size of the store beyond which the finished or stale runs that have been silent for "
            "longest are deleted, likewise; "
            "none keeps all",
        ),
    )
    shutdown_grace: float = field(
        default=10.0,
        metadata=_how(_seconds, "SECONDS", "how long requests may take to end once told to stop"),
    )
    log_level: str = field(
        default="info",
        metadata=_how(
            _one_of("debug", "info", "warning", "error"),
            "LEVEL",
            "least level that is logged: debug, info, warning or error",
        ),
    )
    log_format: str = field(
        default="json", metadata=_how(_one_of("json", "text"), "json|text", "form of log lines")
    )

    @property
    def host(self) -> str:
        """The host to listen on, without brackets."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port to listen on."""
        return int(self.listen.rpartition(":")[2])


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting; none has a default, so that the environment shows through."""
    for setting in fields(Settings):
        shown = "none" if setting.default is None else setting.default
        parser.add_argument(
            f"--{setting.name.replace('_', '-')}",
            dest=setting.name,
            metavar=setting.metadata["metavar"],
            help=f"{setting.metadata['help']} ({PREFIX}{setting.name.upper()}, default: {shown})",
        )


def read_settings(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    """Return the settings of flags and environment; a flag wins, an empty variable is none.

    Raises:
        ConfigurationError: a value cannot be used; says which and why.
    """
    given: dict[str, Any] = {}
    for setting in fields(Settings):
        flag = getattr(arguments, setting.name, None)
        variable = f"{PREFIX}{setting.name.upper()}"
        text = environ.get(variable) or None if flag is None else flag
        if text is not None:
            name = variable if flag is None else f"--{setting.name.replace('_', '-')}"
            given[setting.name] = _parsed(name, setting.metadata, text)
    return Settings(**given)


def _parsed(name: str, how: Mapping[str, Any], text: str) -> Any:
    try:
        return how["parse"](text)
    except ValueError as error:
        reason = str(error)
        if not reason.startswith("must"):  # of the language, about what is no number
            unit = {"SECONDS": " of seconds", "BYTES": " of bytes"}.get(how["metavar"], "")
            reason = f"must be a number{unit}"
        raise ConfigurationError(f"{name}: {reason}, not {text!r}") from error
