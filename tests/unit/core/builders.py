"""Reports, rows and ledgers in a line each, and plain pictures of what a ledger holds."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from rankfold import reading
from rankfold.attempt import Attempt
from rankfold.coverage import Selection, coverage
from rankfold.facts import Facts
from rankfold.iterations import Iterations
from rankfold.ledger import Ledger
from rankfold.page import Page
from rankfold.partial import PartialColumns, Worst, number_from_json
from rankfold.rules import Rule, RuleSet
from rankfold.wire import Commit, Report, ScalarColumns

SERIES = "training/rollout_logprobs"
OTHER = "training/other"
OPTIONAL = ("sum_sq", "ulp_max", "total", "worst")

Row = Mapping[str, Any]


def partial(iteration: int = 0, microbatch: int = 0, **rest: Any) -> dict[str, Any]:
    """Return a clean partial of eight positions, with the given fields instead."""
    clean = {"series": SERIES, "count": 0, "valid": 8, "nonfinite": 0, "max": 0.0, "sum": 0.0}
    return {**clean, "iteration": iteration, "microbatch": microbatch, **rest}


def dirty(iteration: int = 0, microbatch: int = 0, **rest: Any) -> dict[str, Any]:
    """Return a partial with one mismatch of a half."""
    return partial(iteration, microbatch, **{"count": 1, "max": 0.5, "sum": 0.5, **rest})


def scalar(key: str = "loss", iteration: int = 0, microbatch: int = 0, **rest: Any) -> Row:
    """Return a scalar of value 1, with the given fields instead."""
    plain = {"value": 1.0, "weight": 1, "rule": Rule.MEAN, "is_global": False}
    return {**plain, "key": key, "iteration": iteration, "microbatch": microbatch, **rest}


def partial_columns(rows: Iterable[Row]) -> PartialColumns:
    """Return partials as columns; an optional column that no row has stays None."""
    rows = list(rows)
    columns = PartialColumns()
    for field in fields(columns):
        if field.name not in OPTIONAL:
            setattr(columns, field.name, [row[field.name] for row in rows])
        elif any(field.name in row for row in rows):
            setattr(columns, field.name, [row.get(field.name) for row in rows])
    return columns


def scalar_columns(rows: Iterable[Row]) -> ScalarColumns:
    """Return scalars as columns."""
    rows = list(rows)
    columns = ScalarColumns()
    for field in fields(columns):
        setattr(columns, field.name, [row[field.name] for row in rows])
    return columns


def report(
    rank: int = 0,
    partials: Iterable[Row] = (),
    scalars: Iterable[Row] = (),
    commits: Iterable[tuple[int, int]] = (),
    **rest: Any,
) -> Report:
    """Return a report of one rank; commits are pairs of iteration and microbatches."""
    return Report(
        run="run",
        rank=rank,
        partials=partial_columns(partials),
        scalars=scalar_columns(scalars),
        commits=[Commit(*pair) for pair in commits],
        **rest,
    )


def report_of_json(body: Mapping[str, Any]) -> Report:
    """Return the report of a request body in row form."""
    rows = [{"nonfinite": 0, **row} for row in body.get("partials", ())]
    scalars = [
        {
            "weight": 1,
            **row,
            "value": number_from_json(row["value"]),
            "rule": Rule(row["rule"]),
            "is_global": row.get("global", False),
        }
        for row in body.get("scalars", ())
    ]
    return report(
        body["rank"],
        rows,
        scalars,
        [(c["iteration"], c["microbatches"]) for c in body.get("commits", ())],
        attempt=body.get("attempt", 0),
        world_size=body.get("world_size"),
    )


def ledger_of(*reports: Report, rules: RuleSet | None = None) -> Ledger:
    """Return a ledger that has taken these reports at second 1, 2, 3 and so on."""
    ledger = Ledger("default", "run", Facts(rules or RuleSet()))
    for number, item in enumerate(reports, 1):
        ledger.apply(item, float(number))
    return ledger


class Shelf:
    """A fake of where pages are kept: saves copies, loads copies, counts the loads."""

    def __init__(self) -> None:
        self.pages: dict[tuple[int, int], bytes] = {}
        self.loads = 0

    def load(self, attempt: int, iteration: int) -> Page:
        """Return a copy whose derived parts are made anew."""
        self.loads += 1
        page = Page()
        kept = pickle.loads(self.pages[attempt, iteration])  # noqa: S301 - our own bytes
        for name in ("commits", "series", "scalars", "conflicts", "table"):
            setattr(page, name, getattr(kept, name))
        page.recount()
        return page

    def put(self, attempt: int, iteration: int, page: Page) -> None:
        """Keep a copy of a page."""
        self.pages[attempt, iteration] = pickle.dumps(page)

    def save(self, ledger: Ledger, keep: int = 0) -> None:
        """Save what changed and make the ledger forget it."""
        for attempt in ledger.attempts.values():
            for iteration in attempt.dirty:
                page = attempt.held(iteration)
                if page is not None:
                    self.put(attempt.number, iteration, page)
            attempt.dirty.clear()
            attempt.forget_pages(keep)

    def ledger(self) -> Ledger:
        """Return an empty ledger that finds its pages here."""
        return Ledger("default", "run", Facts(RuleSet()), shelf=self)


def plain(value: Any) -> Any:
    """Return a value as nested dicts, lists and words that compare by content and by bit."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value.hex()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, list | tuple | Iterations):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, Worst | RuleSet):
        compared = [field.name for field in fields(value) if field.compare]
        return {name: plain(getattr(value, name)) for name in compared}
    if hasattr(value, "__slots__") and not isinstance(value, Worst):
        return {name: plain(getattr(value, name)) for name in value.__slots__}
    if isinstance(value, Attempt | Ledger):
        return {name: plain(item) for name, item in vars(value).items() if name != "version"}
    return repr(value)


def picture(ledger: Ledger) -> dict[str, Any]:
    """Return every answer that a ledger gives, plain: what must not depend on how it came."""
    views: dict[str, Any] = {
        "conflicts": ledger.conflicts,
        "series": sorted(ledger.facts.series),
        "newest": plain(reading.newest_complete(ledger)),
        "attempts": {
            number: (
                a.expected,
                a.launch.first_iteration,
                a.last_iteration,
                a.cut,
                plain(a.covered),
            )
            for number, a in ledger.attempts.items()
        },
    }
    for attempts in ("effective", "all", *ledger.attempts):
        for rank in (None, 0, 1, 2, 3):
            views[f"totals {attempts} {rank}"] = plain(ledger.totals(attempts, rank))
            views[f"iterations {attempts} {rank}"] = plain(
                reading.iterations(ledger, Selection(attempts=attempts), rank, 100)
            )
        for chosen in ((), (SERIES,), (OTHER, "never")):
            for first, last in ((None, None), (1, 2)):
                selection = Selection(chosen, first, last, attempts)
                views[f"coverage {selection}"] = plain(coverage(ledger, selection))
                views[f"range {selection}"] = plain(reading.range_totals(ledger, selection))
    return views
