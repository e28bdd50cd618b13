"""Decides from arguments and environment whether there is a spool, and opens it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from rankfold_client.origin import Origin
from rankfold_client.spool.writer import Writer

DEFAULT_BYTES = 256 << 20
LEAST_BYTES = 64 << 10

log = logging.getLogger("rankfold")


def open_writer(
    environment: Mapping[str, str],
    spool: str | os.PathLike[str] | None,
    spool_bytes: int | None,
    origin: Origin,
) -> Writer | None:
    """Return the spool of a process; None where there is to be none.

    A directory that cannot be used now is logged and tried again later.

    Args:
        environment: stands in for what is None.
        spool: the directory; "" says that there is none.
        spool_bytes: the bound.
        origin: whose items it will hold.

    Raises:
        ValueError: an argument or a variable makes no sense.
    """
    limit = _limit(environment, spool_bytes)
    folder = environment.get("RANKFOLD_SPOOL_DIR", "") if spool is None else spool
    try:
        path = os.fspath(folder)
        writer = Writer(Path(path).absolute(), origin, limit) if path else None
    except TypeError:
        raise ValueError(f"spool must be the path of a directory, not {spool!r}") from None
    if "\0" in path:
        raise ValueError(f"spool must be the path of a directory, not {spool!r}")
    if writer is None:
        return None
    try:
        writer.rotate()
    except OSError as error:
        writer.fail(error)
        log.warning(
            "the spool %s cannot be used (%s): items wait in memory only, and a killed process "
            "loses them, until it can be",
            *(folder, error),
        )
    return writer


def _limit(environment: Mapping[str, str], spool_bytes: int | None) -> int:
    told = environment.get("RANKFOLD_SPOOL_BYTES") if spool_bytes is None else spool_bytes
    if told is None or told == "":
        return DEFAULT_BYTES
    try:
        limit = int(told) if isinstance(told, str) else told
    except ValueError:
        raise ValueError(f"RANKFOLD_SPOOL_BYTES must be an integer, not {told!r}") from None
    if type(limit) is not int or limit < LEAST_BYTES:
        raise ValueError(f"spool_bytes must be an integer from {LEAST_BYTES}, not {told!r}")
    return limit
