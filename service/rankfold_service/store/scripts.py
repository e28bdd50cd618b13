"""The numbered scripts of a kind of store's schema."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources


def scripts(kind: str) -> Iterator[tuple[int, str, str]]:
    """Yield number, name and text of each script for a kind of store, ascending."""
    folder = resources.files("rankfold_service.store") / "sql" / kind
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            yield int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text()
