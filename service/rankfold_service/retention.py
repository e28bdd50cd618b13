"""Which runs are forgotten, and when: by age and by size, if the operator wants that at all."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from rankfold.ledger import Ledger
from rankfold_service.store import Store

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
) -> list[tuple[str, str]]:
    """Delete what is too old or too much; return the (project, run) that were deleted.

    A run that is still running is never deleted, whatever the limits.
    """
    silent = [ledger for ledger in store.runs() if not running(ledger)]
    silent.sort(key=lambda ledger: ledger.last_report)
    gone: list[tuple[str, str]] = []
    for ledger in silent:
        too_old = retention.age is not None and now - ledger.last_report > retention.age
        too_much = retention.size is not None and store.size() > retention.size
        if not too_old and not too_much:
            break  # the rest reported later still
        store.delete(ledger.project, ledger.run)
        gone.append((ledger.project, ledger.run))
        reason = "age" if too_old else "size"
        _log.info(
            "forgot a run",
            extra={"project": ledger.project, "run": ledger.run, "reason": reason},
        )
    return gone
