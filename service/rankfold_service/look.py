"""Looks at all runs for the gauges: writes the lines of those that changed, a few at a time."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import NamedTuple

from rankfold.errors import NotFound, StoreDamaged
from rankfold_service.judge import Judge, Mark
from rankfold_service.lines import Lines, Template, Templates
from rankfold_service.store import Name, Store
from rankfold_service.writer import Writer

# For how long a look at the runs keeps the writer while nothing else waits; where something does,
# for a part of the time that went by since it last did so, since long commits leave few turns ...
LOOK_SECONDS = 0.004
LOOK_PART = 1 / 8
LEAST_SECONDS = 0.0005
# ... and how many it reads at once where the store is elsewhere. What that took, it may take
# again to look at them.
READ_AT_ONCE = 8

_log = logging.getLogger("rankfold.look")


class _Seen(NamedTuple):
    """A run as it was when it was read last: the store's version, its mark and its lines.

    It has no lines where the gauges no longer show it. The template is held for the next time.
    """

    version: Hashable
    mark: Mark
    lines: Lines | None
    template: Template | None


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
        self._templates = Templates()
        self.damaged = 0

    async def look(self) -> dict[Name, Lines]:
        """Return the lines of the runs that are shown, by project and name, in order.

        Each run is of one moment, but reports are taken between one few of them and the next:
        however many runs there are, no report waits for all of them. What is damaged is left
        out.
        """
        versions = await self._writer.call(lambda store: store.versions())
        look = _Look(
            self._judge, self._templates, versions, self._seen, lambda: self._writer.waited_for
        )
        while await self._writer.call(look.go_on):
            pass
        for error in look.damaged:
            _log.warning("a run is left out of the gauges: %s", error)
        self._seen, self.damaged = look.seen, len(look.damaged)
        seen = ((name, look.seen[name]) for name in versions if name in look.seen)
        return {name: run.lines for name, run in seen if run.lines is not None}


class _Look:
    """One look at all runs.

    Lines are written in the writer's own turns: a second thread beside it would take as much of
    the interpreter, and make each call of the writer that gives it away wait to get it back.

    Args:
        judge: says what the gauges show.
        templates: of the lines.
        versions: of every run.
        seen: what an earlier look has seen.
        waited_for: says whether anything else waits for the writer.
    """

    def __init__(
        self,
        judge: Judge,
        templates: Templates,
        versions: Mapping[Name, Hashable],
        seen: Mapping[Name, _Seen],
        waited_for: Callable[[], bool],
    ) -> None:
        self._judge = judge
        self._templates = templates
        self._waited_for = waited_for
        self._versions = versions
        self.seen: dict[Name, _Seen] = {}
        self.damaged: list[StoreDamaged] = []
        self._ended = time.perf_counter()
        self._rest: deque[Name] = deque()
        for name, version in versions.items():
            known = seen.get(name)
            if known is None or known.version != version or not self._keep(name, known):
                self._rest.append(name)

    def _keep(self, name: Name, known: _Seen) -> bool:
        """Keep what is known of a run that the store has not changed, unless time has."""
        mark = self._judge.again(known.mark)
        if not self._judge.shown(mark):
            known = known._replace(lines=None)
        elif mark != known.mark or known.lines is None:
            return False
        self.seen[name] = known
        return True

    def go_on(self, store: Store) -> bool:
        """Look at a few more of the runs that changed; say whether there are more."""
        began = time.perf_counter()
        short = min(max(LOOK_PART * (began - self._ended), LEAST_SECONDS), LOOK_SECONDS)
        fetching = 0.0
        while self._rest:
            started = time.perf_counter()
            store.read_ahead(list(islice(self._rest, READ_AT_ONCE)))
            fetching += time.perf_counter() - started
            for _ in range(min(READ_AT_ONCE, len(self._rest))):
                self._read(store, self._rest.popleft())
                most = short if self._waited_for() else LOOK_SECONDS
                self._ended = time.perf_counter()
                if self._ended - began - fetching > max(most, fetching):
                    return bool(self._rest)
        return False

    def _read(self, store: Store, name: Name) -> None:
        try:
            ledger = store.run(*name)
            mark = self._judge.mark(ledger)
            template = lines = None
            if self._judge.shown(mark):
                run = self._judge.snapshot(ledger, mark)
                template = self._templates.of(run)
                lines = template.fill(run)
            # What changes after the version was read is another version.
            self.seen[name] = _Seen(self._versions[name], mark, lines, template)
        except NotFound:
            pass  # deleted since its name was read
        except StoreDamaged as error:
            self.damaged.append(error)
