"""A consistent copy of a SQLite store, also while an aggregator writes to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from rankfold.errors import StoreRefused
from rankfold_service.store.disk import check_leftovers, check_place, sync_folder
from rankfold_service.store.migrate import check_version, migrations, version


def backup(source: Path, target: Path, progress: Callable[[int, int], None]) -> int:
    """Copy a store as it is at one moment; the copy appears whole or not at all.

    One read transaction sees one state, so every report that was acknowledged before the call
    is in the copy. Writing goes on meanwhile.

    Args:
        source: of the store, in use or not.
        target: where the copy goes; must not be there yet.
        progress: is told how many pages are left, and of how many.

    Returns:
        the size of the copy in bytes.

    Raises:
        StoreRefused: the source is no store, the target is there, or the disk does not take it.
    """
    check_leftovers(source)
    if not source.exists():
        raise StoreRefused(f"{source} is not there: name the store to copy")
    if target.exists():
        raise StoreRefused(f"{target} is there already: name another target, or remove it")
    check_place(target)
    draft = target.with_name(f".{target.name}.new")
    try:
        draft.unlink(missing_ok=True)
        _copy(source, draft, progress)
        _check(draft, source)
        os.rename(draft, target)
        sync_folder(target.parent)
    except (OSError, sqlite3.Error) as error:
        raise StoreRefused(f"cannot copy {source} to {target}: {error}") from error
    finally:
        draft.unlink(missing_ok=True)
    return target.stat().st_size


def _copy(source: Path, draft: Path, progress: Callable[[int, int], None]) -> None:
    reading = sqlite3.connect(f"{source.resolve().as_uri()}?mode=rw", uri=True)
    writing = sqlite3.connect(draft)
    try:
        reading.execute("BEGIN")
        # From here on the state is fixed.
        reading.execute("SELECT count(*) FROM sqlite_master").fetchone()
        reading.backup(writing, pages=-1, progress=lambda _, left, total: progress(left, total))
    finally:
        writing.close()
        reading.close()


def _check(draft: Path, source: Path) -> None:
    """Refuse a copy that could not be opened later, as its source could not; make it durable."""
    connection = sqlite3.connect(draft)
    try:
        check_version(version(connection, source), source, migrations())
    finally:
        connection.close()
    with draft.open("rb") as file:
        os.fsync(file.fileno())
