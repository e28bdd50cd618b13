"""Looks at all runs for the gauges: reads those that changed, a few at a time."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Hashable, Mapping
from itertools import islice
from typing import NamedTuple

from rankfold.errors import NotFound, StoreDamaged
from rankfold_service.judge import Judge, Mark, Sight
from rankfold_service.store import Name, Store
from rankfold_service.writer import Writer

# For how long a look at the runs keeps the writer from taking reports ...
LOOK_SECONDS = 0.002
# ... and how many it reads at once where the store is elsewhere. What that took, it may take
# again to look at them.
READ_AT_ONCE = 8

_log = logging.getLogger("rankfold.look")


class _Seen(NamedTuple):
    """A run as it was when it was read last, shown or not: the store's version, and its mark."""

    version: Hashable
    mark: Mark


class Lookout:
    """Knows which runs have changed since it looked at them, so that a look costs no more.

    Args:
        writer: runs the calls of the store.
        judge: says what the gauges show.

    Attributes:
        damaged: how many runs the last look had to leave out.
    """

    def __init__(self, writer: Writer, judge: Judge) -> None:
        self._writer = writer
        self._judge = judge
        self._seen: dict[Name, _Seen] = {}
        self.damaged = 0

    async def look(self, known: Mapping[Name, Mark]) -> dict[Name, Sight]:
        """Return the runs that are shown, by project and name, in order.

        Each run is of one moment, but reports are taken between one few of them and the next:
        however many runs there are, no report waits for all of them. What is damaged is left
        out.

        Args:
            known: the marks of an earlier look; runs that are still as they were then come
                without a snapshot.
        """
        versions = await self._writer.call(lambda store: store.versions())
        look = _Look(self._judge, known, versions, self._seen)
        while await self._writer.call(look.go_on):
            pass
        for error in look.damaged:
            _log.warning("a run is left out of the gauges: %s", error)
        self._seen, self.damaged = look.seen, len(look.damaged)
        return {name: look.found[name] for name in versions if name in look.found}


class _Look:
    """One look at all runs.

    Args:
        judge: says what the gauges show.
        known: the marks that whoever looks has.
        versions: of every run.
        seen: what an earlier look has seen.
    """

    def __init__(
        self,
        judge: Judge,
        known: Mapping[Name, Mark],
        versions: Mapping[Name, Hashable],
        seen: Mapping[Name, _Seen],
    ) -> None:
        self._judge = judge
        self._known = known
        self._versions = versions
        self.seen = {n: s for n, s in seen.items() if versions.get(n) == s.version}
        self.found: dict[Name, Sight] = {}
        self.damaged: list[StoreDamaged] = []
        self._rest = deque(name for name in versions if not self._is_as_it_was(name))

    def _is_as_it_was(self, name: Name) -> bool:
        """Whether a run need not be read."""
        if name not in self.seen:
            return False
        mark = self._judge.again(self.seen[name].mark)
        if not self._judge.shown(mark):
            return True
        if mark != self._known.get(name):
            return False
        self.found[name] = Sight(mark, None)
        return True

    def go_on(self, store: Store) -> bool:
        """Look at a few more of the runs that changed; say whether there are more."""
        until = time.perf_counter() + LOOK_SECONDS
        while self._rest:
            started = time.perf_counter()
            store.read_ahead(list(islice(self._rest, READ_AT_ONCE)))
            until = max(until, 2 * time.perf_counter() - started)
            for _ in range(min(READ_AT_ONCE, len(self._rest))):
                self._read(store, self._rest.popleft())
                if time.perf_counter() > until:
                    return bool(self._rest)
        return False

    def _read(self, store: Store, name: Name) -> None:
        try:
            ledger = store.run(*name)
            # What changes after the version was read is another version.
            self.seen[name] = _Seen(self._versions[name], self._judge.mark(ledger))
            if sight := self._judge.look(ledger, self._known.get(name)):
                self.found[name] = sight
        except NotFound:
            pass  # deleted since its name was read
        except StoreDamaged as error:
            self.seen.pop(name, None)
            self.damaged.append(error)
