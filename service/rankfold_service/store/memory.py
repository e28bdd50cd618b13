"""The reference store: everything in memory, nothing durable; the tests' oracle."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rankfold.errors import RankfoldError, RequestError, StoreDamaged
from rankfold.facts import Facts
from rankfold.ledger import KEPT_ITERATIONS, Ledger
from rankfold.rules import RuleSet
from rankfold.wire import Receipt
from rankfold_service.store import Arrival, Name, no_run


class MemoryStore:
    """Keeps the ledger of each run in a dict.

    Args:
        rules: the rules in force.
        keep_iterations: of how many of the newest iterations of each attempt the contents stay
            known; see `Ledger.apply`.
    """

    def __init__(self, rules: RuleSet, *, keep_iterations: int = KEPT_ITERATIONS) -> None:
        self.rules = rules
        self.keep_iterations = keep_iterations
        self.ledgers: dict[tuple[str, str], Ledger] = {}

    def open_ledger(self, project: str, run: str) -> Ledger:
        """Return a run's ledger, a new one where the run is not known yet."""
        return self.ledgers.get((project, run)) or Ledger(project, run, Facts(self.rules))

    def ingest(self, arrivals: Sequence[Arrival]) -> list[Receipt | RankfoldError]:
        """See `Store.ingest`."""
        return [self._outcome(arrival) for arrival in arrivals]

    def _outcome(self, arrival: Arrival) -> Receipt | RankfoldError:
        report, keep = arrival.report, self.keep_iterations
        try:
            ledger = self.open_ledger(report.project, report.run)
            touched = ledger.check(report, keep)
        except (RequestError, StoreDamaged) as error:
            return error
        receipt = ledger.take(report, touched, arrival.now, keep)
        # A run becomes known only with its first good report.
        self.ledgers[report.project, report.run] = ledger
        return receipt

    def finish(self, project: str, run: str, attempt: int) -> None:
        """See `Store.finish`."""
        self.run(project, run).finish(attempt)

    def delete(self, project: str, run: str) -> None:
        """See `Store.delete`."""
        self.run(project, run)
        del self.ledgers[project, run]

    def names(self) -> list[Name]:
        """See `Store.names`."""
        return sorted(self.ledgers)

    def versions(self) -> dict[Name, Hashable]:
        """See `Store.versions`."""
        return {name: self.ledgers[name].version for name in self.names()}

    def read_ahead(self, names: Sequence[Name]) -> None:
        """See `Store.read_ahead`; all of them are here."""

    def run(self, project: str, run: str) -> Ledger:
        """See `Store.run`."""
        ledger = self.ledgers.get((project, run))
        if ledger is None:
            raise no_run(project, run)
        return ledger

    def size(self, beyond: int = 0) -> int:
        """See `Store.size`; memory takes no disk."""
        return 0

    def probe(self) -> None:
        """See `Store.probe`; memory is always there."""

    def maintain(self) -> None:
        """See `Store.maintain`; there is nothing to tidy."""

    def close(self) -> None:
        """See `Store.close`."""
