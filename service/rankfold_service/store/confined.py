"""The runs that a start could not read, and what the journal has to keep until one can."""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Iterable, Iterator
from itertools import groupby, islice, takewhile
from operator import attrgetter
from typing import NamedTuple

from rankfold.errors import StoreDamaged
from rankfold_service.store import Name
from rankfold_service.store.record import Entry, pack
from rankfold_service.store.tables import Tables

_log = logging.getLogger("rankfold.store")


class _Kept(NamedTuple):
    """What a row of the journal says of a confined run."""

    row: int
    name: Name
    records: bytes


class Confined:
    """Runs that are damaged as a whole: each is an error by its name, and costs no other.

    What was journaled of them and is not in their rows stays in the journal, under its number:
    whoever puts a run's row right finds it replayed by the next start. Of the rows that all others
    have no need of, only that is left, so it does not grow: nothing is reported to these runs.
    """

    def __init__(self) -> None:
        self._errors: dict[Name, StoreDamaged] = {}
        self._told: dict[Name, str] = {}
        self._kept: list[_Kept] = []
        # So many of those are in rows that have nothing else any more.
        self._alone = 0

    def __contains__(self, name: object) -> bool:
        return name in self._errors

    def __iter__(self) -> Iterator[Name]:
        return iter(self._errors)

    def clear(self) -> None:
        """Forget everything: the file is read again."""
        self._errors.clear()
        self._kept.clear()
        self._alone = 0

    def add(self, name: Name, error: StoreDamaged) -> None:
        """Confine a run, and tell of it once."""
        self._errors[name] = error
        if self._told.get(name) != str(error):
            self._told[name] = str(error)
            project, run = name
            _log.error("a run is left aside: %s", error, extra={"project": project, "run": run})

    def check(self, name: Name) -> None:
        """Refuse what is asked or reported of a run that is confined.

        Raises:
            StoreDamaged: it is.
        """
        if name in self._errors:
            raise StoreDamaged(str(self._errors[name]))

    def keep(self, row: int, name: Name, entries: Iterable[Entry]) -> None:
        """Keep what a row of the journal says of a run, if anything."""
        if records := b"".join(map(pack, entries)):
            insort(self._kept, _Kept(row, name, records), key=attrgetter("row"))

    def drop(self, name: Name) -> None:
        """Forget a run that was deleted, and what was kept of it."""
        if self._errors.pop(name, None) is not None:
            self._told.pop(name, None)
            self._kept = [kept for kept in self._kept if kept.name != name]
            # The rows that have something of it are to be written without that.
            self._alone = 0

    def trim(self, tables: Tables, first: int) -> None:
        """Let go of the journal's rows before one, but for what is kept of them."""
        done = self._kept[self._alone - 1].row if self._alone else -1
        tables.trim(done, first)
        rest = islice(self._kept, self._alone, None)
        left = [*takewhile(lambda kept: kept.row < first, rest)]
        for row, of_row in groupby(left, attrgetter("row")):
            tables.add(row, b"".join(kept.records for kept in of_row))
        self._alone += len(left)
