"""What an aggregator remembers of runs in the shared store, each part with its version.

Nothing here is believed without its version: books are good up to the version that they have,
and what others have written since is entered into them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rankfold.facts import Facts
from rankfold.iterations import Iterations
from rankfold.ledger import Ledger
from rankfold.rules import RuleSet
from rankfold_service.store import Name
from rankfold_service.store.apart import pack_apart, unpack_apart
from rankfold_service.store.pack import pack_book, unpack_book, unpack_facts
from rankfold_service.store.record import unpack_all
from rankfold_service.store.shelf import HOT_ITERATIONS, PackedShelf, Place, undamaged

# A page in the table: without its contents, and those.
Packed = tuple[bytes, bytes]
# Id of a run, attempt, first and last of iterations that follow each other.
Old = tuple[int, int, int, int]
# Reads a rank's pages from an iteration on: (id of the run, rank, attempt, iteration).
ReadPages = Callable[[int, int, int, int], dict[Place, Packed]]

# So many books are remembered, each of some kilobytes.
MOST_BOOKS = 20_000
# After so much the head and the pages are written and the journal begins anew: longer, and who
# reads the books next has more to enter; shorter, and pages are written more often.
MOST_JOURNALED = 16
MOST_JOURNALED_BYTES = 32_768


class BookShelf(PackedShelf[Packed]):
    """A `rankfold.attempt.Shelf` of one rank's pages in the database.

    Args:
        what: whose pages they are, in an error's words.
        read: returns the pages in the table from an (attempt, iteration) on.

    Attributes:
        fetched: pages in the table that came before they were asked for.
    """

    def __init__(self, what: str, read: Callable[[int, int], dict[Place, Packed]]) -> None:
        super().__init__(what, self._fetch, pack_apart, lambda packed: unpack_apart(*packed))
        self._read_on = read
        self.fetched: dict[Place, Packed] = {}

    def _fetch(self, attempt: int, iteration: int) -> Packed:
        if (attempt, iteration) not in self.fetched:
            self.fetched.update(self._read_on(attempt, iteration))
        return self.fetched[attempt, iteration]


@dataclass(slots=True)
class KnownBook:
    """The books of one rank as they were at a version.

    Attributes:
        ledger: the books.
        shelf: where their pages are.
        version: how many commits have written to them.
        saved: the version that head and pages in the tables are of; the rest is journal.
        records: what the transaction that goes on adds to the journal.
        journaled: the bytes of the journal since `saved`, as far as they went through here.
    """

    ledger: Ledger
    shelf: BookShelf
    version: int
    saved: int
    records: list[bytes] = field(default_factory=list)
    journaled: int = 0

    def fill(self, head: bytes) -> None:
        """Take the head that the database has; the ledger is empty.

        Raises:
            StoreDamaged: the bytes are damaged.
        """
        if head:
            with undamaged(self.shelf.what):
                unpack_book(head, self.ledger)

    def enter(self, version: int, records: bytes) -> None:
        """Enter what another aggregator has journaled.

        Raises:
            StoreDamaged: the bytes are damaged.
        """
        with undamaged(self.shelf.what):
            entries = list(unpack_all(records))
        for entry in entries:
            report = entry.report
            self.ledger.enter(report, report.iterations(), entry.now, entry.keep)
        self.version = version
        self.journaled += len(records)

    @property
    def is_due(self) -> bool:
        """Whether the tables are to be written, rather than the journal to grow."""
        growth = sum(map(len, self.records))
        long = self.version + 1 - self.saved >= MOST_JOURNALED
        return long or self.journaled + growth >= MOST_JOURNALED_BYTES

    def head(self) -> bytes:
        """Return what the tables are to have besides pages."""
        return pack_book(self.ledger)

    def changes(self) -> list[tuple[int, int, bytes, bytes]]:
        """Return the pages that the tables do not have: attempt, iteration, and what they are."""
        for attempt in self.ledger.attempts.values():
            for iteration in attempt.dirty:
                self.shelf.put(attempt.number, iteration, attempt.page(iteration))
        return [(*place, *packed) for place, packed in self.shelf.unsaved()]

    def settle(self, *, saved: bool) -> None:
        """Note that the transaction has committed, and let go of what is not needed soon.

        Args:
            saved: it wrote the tables, not the journal.
        """
        self.version += 1
        self.journaled += sum(map(len, self.records))
        self.records.clear()
        if saved:
            self.saved = self.version
            self.journaled = 0
            self.shelf.settle()
        self.shelf.fetched.clear()
        for attempt in self.ledger.attempts.values():
            if saved:
                attempt.dirty.clear()
            attempt.forget_pages(HOT_ITERATIONS)

    def lacks(self, attempt: int, iteration: int) -> bool:
        """Whether a page is in the table that is not here."""
        found = self.ledger.attempts.get(attempt)
        return (
            found is not None
            and iteration in found.paged
            and iteration not in found.dirty
            and found.held(iteration) is None
        )


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
        written: the ranks whose books the transaction that goes on writes, and whether to the
            tables.
        learned: whether it writes the facts.
        folded: by attempt, of how many of its oldest iterations contents were folded away.
    """

    name: Name
    id: int
    facts: Facts
    version: int = -1
    books: dict[int, KnownBook] = field(default_factory=dict)
    gathered: Ledger | None = None
    written: dict[int, bool] = field(default_factory=dict)
    learned: bool = False
    folded: dict[int, int] = field(default_factory=dict)

    def renew(self, version: int, facts: bytes) -> None:
        """Take newer facts; what was known stays true, so the books go on with them.

        Raises:
            StoreDamaged: the bytes are damaged.
        """
        if version != self.version:
            with undamaged(f"run {self.name[1]!r}"):
                self.facts.become(unpack_facts(facts, self.facts.rules))
            self.version = version
            self.gathered = None

    def settle(self) -> None:
        """Note that the database has what the transaction changed."""
        for rank, saved in self.written.items():
            self.books[rank].settle(saved=saved)
        self.version += self.learned
        self.written.clear()
        self.learned = False
        self.gathered = None

    def newly_old(self, ledger: Ledger, keep: int) -> list[Old]:
        """Return of which iterations contents are to be folded away.

        Args:
            ledger: of the whole run: no rank alone can tell whether an iteration is complete.
            keep: of how many of the newest iterations the contents stay known.
        """
        found = []
        for number, attempt in ledger.attempts.items():
            count = len(attempt.paged)
            # A few at a time: each look at them costs a statement.
            if count >= self.folded.get(number, 0) + 2 * keep:
                self.folded[number] = count - keep
                horizon = attempt.paged.at(count - keep)
                complete = attempt.covered.without(Iterations(sorted(attempt.incomplete)))
                old = [run for run in complete.runs() if run[0] < horizon]
                found += [(self.id, number, a, min(b, horizon - 1)) for a, b in old]
        return found

    def ledgers(self, ranks: Iterable[int]) -> dict[int, Ledger]:
        """Return the books of some ranks."""
        return {rank: self.books[rank].ledger for rank in ranks}

    def open_book(self, rank: int, saved: int, read: ReadPages) -> KnownBook:
        """Return the empty books of a rank, in place of what was known of them."""

        def read_mine(attempt: int, iteration: int) -> dict[Place, Packed]:
            return read(self.id, rank, attempt, iteration)

        shelf = BookShelf(f"rank {rank} of run {self.name[1]!r}", read_mine)
        ledger = Ledger(*self.name, self.facts, of=rank, shelf=shelf)
        book = self.books[rank] = KnownBook(ledger, shelf, version=saved, saved=saved)
        return book


class KnownRuns:
    """The runs that an aggregator remembers, those asked for last at the end.

    What a transaction changes of them counts once it has committed.
    """

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._runs: dict[Name, KnownRun] = {}
        self._changing: set[Name] = set()

    def __getitem__(self, name: Name) -> KnownRun:
        return self._runs[name]

    def get(self, name: Name) -> KnownRun | None:
        """Return what is remembered of a run, or None."""
        return self._runs.get(name)

    def know(self, name: Name, id_: int, version: int, facts: bytes) -> KnownRun:
        """Return what is remembered of a run, brought up to date."""
        known = self._runs.pop(name, None)
        if known is None or known.id != id_:
            known = KnownRun(name, id_, Facts(self._rules))
        self._runs[name] = known
        known.renew(version, facts)
        return known

    def drop(self, name: Name) -> None:
        """Forget a run."""
        self._runs.pop(name, None)

    def clear(self) -> None:
        """Forget all runs: another server may answer now, and have less than was known."""
        self._runs.clear()

    def change(self, names: Iterable[Name]) -> None:
        """Note that the transaction that goes on may change these."""
        self._changing.update(names)

    @property
    def changing(self) -> list[KnownRun]:
        """The runs that the transaction that goes on may have changed."""
        return [self._runs[name] for name in sorted(self._changing)]

    def keep_changes(self) -> None:
        """Note that the transaction has committed."""
        for run in self.changing:
            run.settle()
        self._changing.clear()
        self.bound()

    def drop_changes(self) -> None:
        """Forget what a transaction that did not commit may have changed."""
        for name in self._changing:
            self.drop(name)
        self._changing.clear()

    def bound(self) -> None:
        """Forget the runs that were not asked for longest, where too much is remembered."""
        count = sum(len(run.books) for run in self._runs.values())
        for name in [*self._runs][:-1]:
            if count <= MOST_BOOKS:
                break
            count -= len(self._runs.pop(name).books)


class MustHold(Exception):
    """Some runs have to be held for what was to be done: it begins again."""

    def __init__(self, names: set[Name]) -> None:
        self.names = names
