"""Which runs are forgotten, and when: by age and by size, if the operator wants that at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from rankfold.errors import NotFound, StoreDamaged
from rankfold.ledger import Ledger
from rankfold_service.store import Name, Store

_log = logging.getLogger("rankfold.retention")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long runs are kept; None keeps them for ever.

    Attributes:
        age: seconds after the last report.
        size: bytes on disk of all runs; beyond, the ones silent for longest go.
    """

    age: float | None = None
    size: int | None = None

    @property
    def on(self) -> bool:
        """Whether anything is ever forgotten."""
        return self.age is not None or self.size is not None


def forget(
    store: Store, retention: Retention, now: float, running: Callable[[Ledger], bool]
) -> list[Name]:
    """Delete what is too old or too much; return the (project, run) that were deleted.

    A run that is still running is never deleted, whatever the limits.
    """
    gone: list[Name] = []
    for last_report, name in sorted(_silent(store, running)):
        too_old = retention.age is not None and now - last_report > retention.age
        too_much = retention.size is not None and store.size(retention.size) > retention.size
        if not too_old and not too_much:
            break  # the rest reported later still
        with suppress(NotFound):  # another aggregator on the same store was faster
            store.delete(*name)
            gone.append(name)
            reason = "age" if too_old else "size"
            _log.info("forgot a run", extra={"project": name[0], "run": name[1], "reason": reason})
    return gone


def _silent(store: Store, running: Callable[[Ledger], bool]) -> Iterator[tuple[float, Name]]:
    """Yield when each run that is not running has last reported, and its name."""
    for name in store.names():
        # What is damaged stays for whoever restores it; the scrape tells of it.
        with suppress(NotFound, StoreDamaged):
            ledger = store.run(*name)
            if not running(ledger):
                yield ledger.last_report, name
