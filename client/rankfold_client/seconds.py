"""Refuses what is no time to wait: a clock that runs against NaN never gets there."""

from __future__ import annotations

import math
from typing import SupportsFloat

# Longer than any training, and what every clock of the platform can still count: so much is
# infinity here.
FOREVER = 1e9


def to_seconds(what: str, value: SupportsFloat) -> float:
    """Return a number of seconds from 0 on; infinity is as good as for ever.

    Args:
        what: how the caller called it.
        value: any number.

    Raises:
        ValueError: it is none, is NaN or is negative.
    """
    try:
        seconds = math.nan if isinstance(value, str | bytes | bytearray | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not seconds >= 0:
        raise ValueError(f"{what} must be a number of seconds from 0 on, not {value!r}")
    return min(seconds, FOREVER)
