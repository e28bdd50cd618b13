"""A run as it is at one moment, to be written once all of it is packed, while reports go on."""

from __future__ import annotations

from collections.abc import Iterator

from rankfold.ledger import Ledger
from rankfold_service.store import Name
from rankfold_service.store.pack import pack_ledger
from rankfold_service.store.pages import PageSnapshot
from rankfold_service.store.shelf import PackedShelf, Place
from rankfold_service.store.tables import PageRow, RunRow


class RunSnapshot:
    """What the tables lack of a run; from now on the run's pages count as saved.

    So head and pages are of one moment, which a start relies on, and only to take it is for one
    moment: the pages are packed one by one.

    Args:
        name: of the run.
        ledger: of the run; None where it was deleted.
        shelf: where its pages are; likewise.
        applied: the newest row of the journal that is in it.
        replaces: the tables may have an older run of that name, which was deleted.
    """

    def __init__(
        self,
        name: Name,
        ledger: Ledger | None,
        shelf: PackedShelf[bytes] | None,
        applied: int,
        *,
        replaces: bool,
    ) -> None:
        self.name = name
        self.ledger = ledger
        self.replaces = replaces
        self.run: RunRow | None = None
        self._packed: dict[Place, bytes] = {}
        self._unpacked: list[tuple[Place, PageSnapshot]] = []
        if ledger is not None and shelf is not None:
            self.run = RunRow(name, pack_ledger(ledger), applied)
            self._packed.update(shelf.unsaved())
            for attempt in ledger.attempts.values():
                for iteration in attempt.clean():
                    place = (attempt.number, iteration)
                    self._unpacked.append((place, PageSnapshot(attempt.page(iteration))))

    def pack(self) -> Iterator[None]:
        """Pack the pages, one at each step."""
        while self._unpacked:
            place, page = self._unpacked.pop()
            self._packed[place] = page.pack()
            yield

    @property
    def pages(self) -> list[PageRow]:
        """What the tables lack of the pages, once they are packed, in order."""
        return [(*place, body) for place, body in sorted(self._packed.items())]

    @property
    def size(self) -> int:
        """How many bytes there are to write."""
        return len(self.run.head) + sum(map(len, self._packed.values())) if self.run else 0
