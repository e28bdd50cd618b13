"""Where one run's pages are while no report needs them: packed, until and in the tables."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Generic, TypeVar

from rankfold.errors import StoreDamaged
from rankfold.ledger import Ledger
from rankfold.page import Page
from rankfold_service.store.record import DamagedRecord

T = TypeVar("T")
Place = tuple[int, int]

# Ranks are seldom further apart; what is older is read again when it is needed.
HOT_ITERATIONS = 2

# What bytes that were not packed here are found out by.
_DAMAGE = (
    *(DamagedRecord, zlib.error, struct.error, ValueError, LookupError, TypeError),
    *(AttributeError, ArithmeticError, StopIteration),
)


@contextmanager
def undamaged(what: str, where: str = "") -> Iterator[None]:
    """Unpack within what the store has.

    Args:
        what: whose it is.
        where: at which place of it, in words.

    Raises:
        StoreDamaged: the bytes are damaged.
    """
    try:
        yield
    except _DAMAGE as error:
        raise StoreDamaged(
            f"{what} is damaged{where}: restore the store from a backup, or delete the run "
            "('rankfold verify' tells what else is damaged)"
        ) from error


class PackedShelf(Generic[T]):
    """A `rankfold.attempt.Shelf` in front of a table of packed pages.

    Old pages are packed one by one before their run is saved (`shelve_old`), so that the save
    itself has only the newest ones left to pack.

    Args:
        what: whose pages they are, in an error's words.
        read: returns what the table has for an (attempt, iteration); LookupError where that is
            nothing.
        pack: makes of a page what the table keeps.
        unpack: makes a page of it again.
    """

    def __init__(
        self,
        what: str,
        read: Callable[[int, int], T],
        pack: Callable[[Page], T],
        unpack: Callable[[T], Page],
    ) -> None:
        self.what = what
        self._read = read
        self._pack = pack
        self._unpack = unpack
        self._waiting: dict[Place, T] = {}

    def load(self, attempt: int, iteration: int) -> Page:
        """See `Shelf.load`.

        Raises:
            StoreUnavailable: the table cannot be read.
            StoreDamaged: what it has is damaged.
        """
        with undamaged(self.what, f" at iteration {iteration} of attempt {attempt}"):
            packed = self._waiting.get((attempt, iteration))
            if packed is None:
                packed = self._read(attempt, iteration)
            return self._unpack(packed)

    def put(self, attempt: int, iteration: int, page: Page) -> None:
        """See `Shelf.put`."""
        self._waiting[attempt, iteration] = self._pack(page)

    def unsaved(self) -> list[tuple[Place, T]]:
        """Return what was put here and is not in the table yet, in order."""
        return sorted(self._waiting.items(), key=itemgetter(0))

    def settle(self) -> None:
        """Let go of everything: the table has it."""
        self._waiting.clear()


def shelve_old(ledger: Ledger, *, keep: bool) -> Iterator[None]:
    """Pack what changed, is complete and is not among the newest, one page at each step.

    What is not complete yet is left where it is, for a rank's next report will change it.

    Args:
        ledger: of the run.
        keep: in memory too what has its contents still, for they are folded away soon.
    """
    for attempt in [*ledger.attempts.values()]:
        for iteration in attempt.old_pages(HOT_ITERATIONS):
            if iteration not in attempt.incomplete:
                attempt.shelve(iteration, keep=keep and iteration >= attempt.horizon)
                yield
