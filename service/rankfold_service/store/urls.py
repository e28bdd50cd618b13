"""What a store's URL names, and what of it may be shown."""

from __future__ import annotations

import re
from pathlib import Path

from rankfold.errors import ConfigurationError
from rankfold.urls import without_user

MEMORY = "memory://"
_SQLITE = "sqlite:///"


def is_postgres(url: str) -> bool:
    """Whether a URL names a PostgreSQL database."""
    return url.startswith(("postgresql://", "postgres://"))


def sqlite_path(url: str) -> Path:
    """Return the path in a SQLite store's URL.

    Raises:
        ConfigurationError: it is another kind of URL, or has no path.
    """
    if is_postgres(url):
        raise ConfigurationError("this is for SQLite stores only: sqlite:///PATH")
    path = url.removeprefix(_SQLITE)
    if path in (url, ""):
        raise ConfigurationError(
            f"unknown store {without_password(url)!r}: use sqlite:///PATH (sqlite:////PATH for an "
            "absolute one), postgresql://USER@HOST/DATABASE, or memory://, which forgets"
        )
    return Path(path)


def without_password(url: str) -> str:
    """Return a URL that may stand in a log; who it names and how they prove it is left out."""
    if url.startswith(_SQLITE):
        return url
    return re.sub(r"(password=)[^&]*", r"\1***", without_user(url))
