"""Brings back, or clears away, what a killed process left of files that are no segment yet."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from rankfold_client.spool.names import HIDDEN, SUFFIX
from rankfold_client.spool.segment import may_hold_records

# To begin a file takes milliseconds, and it is locked for nearly all of them.
PATIENCE = 60.0


def recover(folder: Path, key: str) -> None:
    """Make segments of files that hold records, and remove those that hold none.

    Only where the process that began a segment anew was killed in the middle are there any.

    Args:
        folder: the spool.
        key: whose, as of `segments_in`.

    Raises:
        OSError: the disk does not let us.
    """
    for path in sorted(folder.glob(f"*{HIDDEN}")):
        # Its owner, or another who looks, may be quicker.
        with contextlib.suppress(FileNotFoundError):
            if path.name.startswith(key) and time.time() - path.stat().st_mtime > PATIENCE:
                _recover(path)


def _recover(path: Path) -> None:
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        segment = path.with_suffix(SUFFIX)
        if may_hold_records(fd) and not segment.exists():
            path.rename(segment)
        else:
            path.unlink()
    except BlockingIOError:
        pass  # it is being written
    finally:
        os.close(fd)
