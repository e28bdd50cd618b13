"""What messages may show of a URL: whoever reads them need not know the password in it."""

from __future__ import annotations

import re


def without_user(url: str) -> str:
    """Return a URL with neither user nor password."""
    # A password that was not encoded may hold anything, so all up to the last @ goes.
    return re.sub(r"^([^:/?#]*://)?.*@", r"\1***@", url, flags=re.DOTALL)


def why_unreadable(url: str, error: Exception) -> str:
    """Return why a URL cannot be read, without words that may be a part of its password."""
    special = "write what is special in its user and password as %XX"
    return special if "@" in url else str(error)
