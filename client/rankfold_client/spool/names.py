"""Names segments: safe on every disk, in order of their age, and found again by their rank."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SUFFIX = ".spool"
# Of a file that is no segment yet.
HIDDEN = ".new"
READABLE = 40


def rank_key(header: dict[str, Any]) -> str:
    """Return how the names of a rank's segments begin, for any attempt.

    What can be read of it is for people. The digest tells apart what a disk might not: case,
    length, and characters that no file name may have.
    """
    run = re.sub(r"[^a-z0-9]+", "-", header["run"].lower())[:READABLE].strip("-")
    names = json.dumps([header["project"], header["run"]]).encode("ascii")
    digest = hashlib.sha256(names).hexdigest()[:24]
    return f"{run or 'run'}-{digest}-r{header['rank']}."


def new_name(key: str, token: str, wall: Callable[[], int] = time.time_ns) -> str:
    """Return a name for a segment that begins now.

    Args:
        key: see `rank_key`.
        token: tells apart what begins at the same moment.
        wall: nanoseconds since 1970.
    """
    return f"{key}{wall():020d}-{token}{SUFFIX}"


def segments_in(folder: Path, key: str = "") -> list[Path]:
    """Return the segments in a directory, oldest first for each rank.

    Args:
        folder: the directory.
        key: whose, see `rank_key`; everybody's where it is empty.

    Raises:
        OSError: the directory cannot be read.
    """
    return sorted(p for p in folder.iterdir() if p.suffix == SUFFIX and p.name.startswith(key))
