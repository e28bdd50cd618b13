"""What an aggregator remembers of runs in the shared store, each part with its version.

Nothing here is believed without its version: a book is good as long as the database says that
nobody else has written to it since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rankfold.attempt import Attempt
from rankfold.errors import StoreUnavailable
from rankfold.facts import Facts
from rankfold.ledger import Ledger
from rankfold_service.store import Name
from rankfold_service.store.pack import pack_book, unpack_book, unpack_facts
from rankfold_service.store.shelf import DAMAGE, HOT_ITERATIONS, PackedShelf

# (attempt, iteration) of one rank.
Place = tuple[int, int]
# Reads a rank's pages from an iteration on: (id of the run, rank, attempt, iteration).
ReadPages = Callable[[int, int, int, int], dict[Place, bytes]]


@dataclass(slots=True)
class KnownBook:
    """The books of one rank as they were at a version; 0 before anybody wrote to them."""

    ledger: Ledger
    shelf: PackedShelf
    fetched: dict[Place, bytes]
    version: int = 0

    def fill(self, version: int, head: bytes) -> None:
        """Take what the database has; the ledger is empty.

        Raises:
            StoreUnavailable: the bytes are damaged.
        """
        self.version = version
        if not head:
            return
        try:
            unpack_book(head, self.ledger)
        except DAMAGE as error:
            run, rank = self.ledger.run, self.ledger.of
            what = f"what rank {rank} of run {run!r} reported is damaged: restore the store"
            raise StoreUnavailable(what) from error

    def changes(self) -> list[tuple[int, int, bytes]]:
        """Return the pages that changed: attempt, iteration and what they are now."""
        return [
            (attempt.number, iteration, self.shelf.packed(attempt, iteration))
            for attempt in self.ledger.attempts.values()
            for iteration in sorted(attempt.dirty)
        ]

    def head(self) -> bytes:
        """Return what the database is to have besides pages."""
        return pack_book(self.ledger)

    def settle(self) -> None:
        """Note that the database has everything, and let go of what is not needed soon."""
        self.shelf.settle()
        self.fetched.clear()
        for attempt in self.ledger.attempts.values():
            attempt.dirty.clear()
            attempt.forget_pages(HOT_ITERATIONS)

    def lacks(self, attempt: int, iteration: int) -> bool:
        """Whether a page is in the database that is not here."""
        found: Attempt | None = self.ledger.attempts.get(attempt)
        return found is not None and iteration in found.paged and found.held(iteration) is None


@dataclass(slots=True)
class KnownRun:
    """A run as it was at a version of its facts, and the books that are remembered of it.

    Attributes:
        name: its project and name.
        id: what the database calls it; a run that is begun anew has another.
        facts: what is known of it as a whole.
        version: of the facts.
        books: by rank.
        gathered: what readers saw of it last, as long as that is what it is.
        written: the ranks whose books the transaction that goes on has changed.
        learned: whether it has changed the facts.
    """

    name: Name
    id: int
    facts: Facts
    version: int = -1
    books: dict[int, KnownBook] = field(default_factory=dict)
    gathered: Ledger | None = None
    written: set[int] = field(default_factory=set)
    learned: bool = False

    def renew(self, version: int, facts: bytes) -> None:
        """Take newer facts; what was known stays true, so the books go on with them."""
        if version != self.version:
            self.version = version
            self.facts.become(unpack_facts(facts, self.facts.rules))
            self.gathered = None

    def settle(self) -> None:
        """Note that the database has what the transaction changed."""
        for rank in self.written:
            self.books[rank].version += 1
            self.books[rank].settle()
        self.version += self.learned
        self.written.clear()
        self.learned = False
        self.gathered = None

    def ledgers(self, ranks: Iterable[int]) -> dict[int, Ledger]:
        """Return the books of some ranks."""
        return {rank: self.books[rank].ledger for rank in ranks}

    def open_book(self, rank: int, read: ReadPages) -> KnownBook:
        """Return the empty books of a rank, in place of what was known of them."""
        fetched: dict[Place, bytes] = {}

        def load(attempt: int, iteration: int) -> bytes:
            if (attempt, iteration) not in fetched:
                fetched.update(read(self.id, rank, attempt, iteration))
            return fetched[attempt, iteration]

        shelf = PackedShelf(f"rank {rank} of run {self.name[1]!r}", load)
        ledger = Ledger(*self.name, self.facts, of=rank, shelf=shelf)
        book = self.books[rank] = KnownBook(ledger, shelf, fetched)
        return book
