"""Which names projects, runs, series and keys may have."""

from __future__ import annotations

import unicodedata

MAX_NAME = 200


def name_fault(name: str, *, in_path: bool = False) -> str | None:
    """Return why a name is not allowed, or None where it is.

    Args:
        name: of a project, run, series or key.
        in_path: True for a project or run, which stand in URLs between slashes.
    """
    if not 1 <= len(name) <= MAX_NAME:
        return f"must have 1 to {MAX_NAME} characters, not {len(name)}"
    # isprintable is the cheap way through for nearly every name; it refuses more than we do.
    if not name.isprintable():
        for char in name:
            category = unicodedata.category(char)
            if category == "Cc":
                return "must not contain control characters"
            if category == "Cs":
                return "must not contain lone surrogates"
    if in_path and "/" in name:
        return "must not contain '/'"
    if in_path and name in (".", ".."):
        return "must not be '.' or '..'"
    return None
