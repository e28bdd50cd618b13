"""Everything that a store answers, as one value that can be compared."""

from __future__ import annotations

from typing import Any

from rankfold.coverage import Selection
from rankfold.gate import Policy
from rankfold.ledger import Ledger
from rankfold.reading import iterations, range_totals
from rankfold_service import present
from rankfold_service.judge import Ages, Judge
from rankfold_service.store import Store
from support.gauges import lines_of

NOW = 1000.0


def everything(store: Store) -> dict[tuple[str, str], Any]:
    """Return every answer about every run."""
    return {name: about(store.run(*name)) for name in store.names()}


def about(ledger: Ledger) -> dict[str, Any]:
    """Return every answer about one run."""
    judge = Judge(Ages(), lambda: NOW)
    chosen = ["all", "effective", *ledger.attempts]
    ranks = [None, *sorted({r for a in ledger.attempts.values() for r in a.reporters})]
    ends = Selection(first=1, last=4)
    return {
        "run": judge.run(ledger),
        "gauges": lines_of(judge.snapshot(ledger, judge.mark(ledger))),
        "gates": [
            judge.gate(ledger, Selection(attempts=attempts), policy)
            for attempts in chosen
            for policy in (Policy(), Policy(live=True), Policy(allow_absent=True))
        ],
        "totals": [
            [repr(key) for key in present.keys(ledger.facts, ledger.totals(attempts, rank))]
            for attempts in chosen
            for rank in ranks
        ],
        "range": [repr(key) for key in present.keys(ledger.facts, range_totals(ledger, ends))],
        "iterations": [
            [
                (i.iteration, i.complete, [repr(k) for k in present.keys(ledger.facts, i.table)])
                for i in iterations(ledger, Selection(attempts=attempts), rank, 100)
            ]
            for attempts in chosen
            for rank in ranks
        ],
    }
