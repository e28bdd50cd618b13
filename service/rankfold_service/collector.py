"""When Python's garbage collector looks at what: seldom, for ledgers and requests hold no cycles.

A look costs as much as there is to look at, and nearly all of it is still there: a commit of
20,000 partials leaves as many tuples. What a commit left is set aside, in one step however much it
is, and freed as ever when nobody holds it. What only a collector would free, which a defect may
leave, is looked for once an hour.
"""

from __future__ import annotations

import gc

LOOK_SECONDS = 3600.0
# New containers that are looked at without a commit: more than one commit's share of rows.
_YOUNG = 50_000


def begin() -> None:
    """Have the collector look at what comes from now on only, and seldom at that."""
    look_at_all()
    gc.set_threshold(_YOUNG, 10, 10)


def set_aside() -> None:
    """Have the collector look at nothing that is there now, until it looks at everything."""
    gc.freeze()


def look_at_all() -> None:
    """Free what is garbage, wherever it is; a tenth of a second where there is much."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
