"""Where one run's pages are while no report needs them: packed, until and in the tables."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator

from rankfold.attempt import Attempt
from rankfold.errors import StoreUnavailable
from rankfold.ledger import Ledger
from rankfold.page import Page
from rankfold_service.store.pack import pack_page, unpack_page

Place = tuple[int, int]

# What bytes that were not packed here are found out by.
DAMAGE = (zlib.error, struct.error, ValueError, LookupError, TypeError)

# Ranks are seldom further apart; what is older is read again when it is needed.
HOT_ITERATIONS = 2
# Each takes about a kilobyte.
MOST_CELLS_KEPT = 50_000


class PackedShelf:
    """A `rankfold.attempt.Shelf` in front of a table of packed pages.

    Pages whose contents were folded away are packed when they come, a few with each report,
    so that bringing the tables up to date has only the newest ones left to pack.

    Args:
        run: what an error calls the run and its store.
        read: returns the bytes that the table has for an (attempt, iteration).
    """

    def __init__(self, run: str, read: Callable[[int, int], bytes]) -> None:
        self._run = run
        self._read = read
        self._waiting: dict[Place, bytes] = {}

    def load(self, attempt: int, iteration: int) -> Page:
        """See `Shelf.load`.

        Raises:
            StoreUnavailable: the table cannot be read, or what it has is damaged.
        """
        data = self._waiting.get((attempt, iteration)) or self._read(attempt, iteration)
        return page_of(data, self._run, attempt, iteration)

    def put(self, attempt: int, iteration: int, page: Page) -> None:
        """See `Shelf.put`."""
        self._waiting[attempt, iteration] = pack_page(page)

    def packed(self, attempt: Attempt, iteration: int) -> bytes:
        """Return the bytes of a page that the table does not have yet, as it is now."""
        page = attempt.held(iteration)
        return self._waiting[attempt.number, iteration] if page is None else pack_page(page)

    def settle(self) -> None:
        """Let go of everything: the table has it."""
        self._waiting.clear()


def page_of(data: bytes, run: str, attempt: int, iteration: int) -> Page:
    """Return the page that was packed.

    Raises:
        StoreUnavailable: the bytes are damaged.
    """
    try:
        return unpack_page(data)
    except DAMAGE as error:
        where = f"{run} is damaged at iteration {iteration} of attempt {attempt}"
        raise StoreUnavailable(f"{where}: restore the store") from error


def shelve_old(ledgers: Iterable[Ledger]) -> Iterator[None]:
    """Pack what changed, is complete and is not among the newest, one page at each step.

    What is not complete yet is left where it is: a rank's next report would want it back.
    """
    for attempt in [attempt for ledger in ledgers for attempt in ledger.attempts.values()]:
        for iteration in attempt.old_pages(HOT_ITERATIONS):
            if attempt.held(iteration) is not None and iteration not in attempt.incomplete:
                attempt.shelve(iteration)
                yield


def let_go(ledgers: Iterable[Ledger], keep: int) -> None:
    """Let go of pages that the tables have, but for the newest `keep` of each attempt.

    Beyond a number of cells, which bounds the memory, fewer are kept.
    """
    cells = 0
    for attempt in [attempt for ledger in ledgers for attempt in ledger.attempts.values()]:
        attempt.dirty.clear()
        attempt.forget_pages(keep)
        if cells + attempt.held_cells() > MOST_CELLS_KEPT:
            attempt.forget_pages(min(keep, HOT_ITERATIONS))
        cells += attempt.held_cells()
