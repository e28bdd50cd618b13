"""Bytes to a `Report`: whole columns are checked at once, reasons are looked for on refusal only.

Both forms of a list end as columns, and no object per partial is made on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import eq, ge
from typing import Any

from rankfold.errors import Inconsistent, TooLarge
from rankfold.partial import PartialColumns, Worst, faults, number_from_json
from rankfold.rules import SCALAR_RULES, RuleSet
from rankfold.wire import MAX_ITEMS, Commit, Report, ScalarColumns, field_error
from rankfold_service.http.kinds import Fault, within
from rankfold_service.http.parse import parse
from rankfold_service.http.shapes import (
    COMMITS,
    FINISH,
    HEADER,
    LISTS,
    PARTIALS,
    REPORT,
    SCALARS,
)
from rankfold_service.http.tables import Columns

MAX_FAULTS = 100

_RULES = {rule.value: rule for rule in SCALAR_RULES}


def decode_report(body: bytes, rules: RuleSet, max_items: int = MAX_ITEMS) -> Report:
    """Return the report that a body holds, in either form of each list.

    Args:
        body: as it is after decompression.
        rules: where the rule of a scalar comes from that was sent without one.
        max_items: how many objects each list may have.

    Raises:
        MalformedBody: it is not JSON.
        TooLarge: a list is too long.
        Inconsistent: it is not a report; names each fault, the first `MAX_FAULTS`.
    """
    document = parse(body)
    _check_lengths(document, max_items)
    report = _taken(document, rules)
    if report is None:
        raise _refusal(_report_faults(document, rules))
    return report


def decode_finish(body: bytes) -> int:
    """Return the attempt that a body says is finished.

    Raises:
        MalformedBody: it is not JSON.
        Inconsistent: it is not an object with an attempt.
    """
    document = parse(body)
    if not FINISH.fits([document]):
        raise _refusal(FINISH.faults(document))
    attempt: int = document["attempt"]
    return attempt


def _check_lengths(document: Any, max_items: int) -> None:
    if not isinstance(document, dict):
        return
    for name, listing in LISTS.items():
        length = listing.length(document.get(name))
        if length > max_items:
            raise TooLarge(f"{name} has {length} items; {max_items} are allowed in one report")


def _taken(document: Any, rules: RuleSet) -> Report | None:
    """Return the report, or None where anything at all is wrong."""
    if not isinstance(document, dict):
        return None
    header = {name: value for name, value in document.items() if name not in LISTS}
    if not HEADER.fits([header]) or _beyond_world(header):
        return None
    partials = _partials(document.get("partials", []))
    scalars = _scalars(document.get("scalars", []), rules)
    commits = COMMITS.columns(document.get("commits", []))
    if partials is None or scalars is None or commits is None:
        return None
    pairs = map(Commit, commits["iteration"], commits["microbatches"])
    return Report(**header, partials=partials, scalars=scalars, commits=[*pairs])


def _partials(value: Any) -> PartialColumns | None:
    columns = PARTIALS.columns(value)
    if columns is None:
        return None
    taken = PartialColumns(
        series=columns["series"],
        iteration=columns["iteration"],
        microbatch=columns["microbatch"],
        count=columns["count"],
        valid=columns["valid"],
        nonfinite=columns.get("nonfinite") or [0] * len(columns["series"]),
        # Adding 0.0 makes doubles of integers, and 0.0 of -0.0, so that folds have one zero.
        max=[None if number is None else number + 0.0 for number in columns["max"]],
        sum=[number + 0.0 for number in columns["sum"]],
        sum_sq=_optional(columns, "sum_sq"),
        ulp_max=_optional(columns, "ulp_max"),
        total=_optional(columns, "total"),
        worst=_worst(columns),
    )
    if taken.sum_sq is not None:
        taken.sum_sq = [None if number is None else number + 0.0 for number in taken.sum_sq]
    return taken if consistent(taken) else None


def _optional(columns: Columns, name: str) -> list[Any] | None:
    column = columns.get(name, [])
    return column if any(value is not None for value in column) else None


def _worst(columns: Columns) -> list[Worst | None] | None:
    column = _optional(columns, "worst")
    if column is None:
        return None
    return [None if value is None else _one_worst(value) for value in column]


def _one_worst(value: dict[str, Any]) -> Worst:
    return Worst(
        position=tuple(value["position"]),
        a=number_from_json(value["a"]),
        b=number_from_json(value["b"]),
        ulp=value["ulp"],
        token_id=value.get("token_id"),
        sample=value.get("sample"),
    )


def consistent(partials: PartialColumns) -> bool:
    """Whether no partial breaks an invariant: `rankfold.partial.faults`, over whole columns."""
    count, valid = partials.count, partials.valid
    empty = [number is None for number in partials.max]
    return (
        all(map(ge, valid, count))
        and all(map(ge, count, partials.nonfinite))
        and empty == list(map(eq, valid, partials.nonfinite))
        and not any(
            m or s for c, m, s in zip(count, partials.max, partials.sum, strict=True) if not c
        )
        and not any(q for c, q in zip(count, partials.sum_sq or (), strict=False) if not c)
        and not any(
            t is not None and t < v for t, v in zip(partials.total or (), valid, strict=False)
        )
    )


def _scalars(value: Any, rules: RuleSet) -> ScalarColumns | None:
    columns = SCALARS.columns(value)
    if columns is None:
        return None
    keys = columns["key"]
    size = len(keys)
    said = columns.get("rule") or [None] * size
    unsaid = {key for key, rule in zip(keys, said, strict=True) if rule is None}
    known = {key: rule for key in unsaid if (rule := rules.scalar_rule(key))}
    if len(known) < len(unsaid):
        return None
    return ScalarColumns(
        key=keys,
        iteration=columns["iteration"],
        microbatch=columns["microbatch"],
        value=[
            number_from_json(value) if isinstance(value, str) else value + 0.0
            for value in columns["value"]
        ],
        weight=columns.get("weight") or [1] * size,
        rule=[_RULES[rule] if rule else known[key] for key, rule in zip(keys, said, strict=True)],
        is_global=columns.get("global") or [False] * size,
    )


def _report_faults(document: Any, rules: RuleSet) -> Iterator[Fault]:
    """Yield all that is wrong: shapes and single values first, then what contradicts."""
    yield from REPORT.faults(document)
    if not isinstance(document, dict):
        return
    yield from _world_size_faults(document)
    for row in PARTIALS.rows(document.get("partials")):
        if next(PARTIALS.table.faults(row.members), None) is None:
            for fault in _invariant_faults(row.members):
                yield from within("partials", iter([row.place(fault)]))
    for row in SCALARS.rows(document.get("scalars")):
        if next(SCALARS.table.faults(row.members), None) is None:
            for fault in _rule_faults(row.members, rules):
                yield from within("scalars", iter([row.place(fault)]))


def _beyond_world(header: dict[str, Any]) -> bool:
    """Whether the rank is not below the world size, where one is given."""
    size: int | None = header.get("world_size")
    return size is not None and bool(header["rank"] >= size)


def _world_size_faults(document: dict[str, Any]) -> Iterator[Fault]:
    header = {name: value for name, value in document.items() if name in ("rank", "world_size")}
    clean = not any(fault for fault in HEADER.value_faults(header))
    if clean and "rank" in header and _beyond_world(header):
        yield Fault(("rank",), f"is not below the world size {header['world_size']}")


def _invariant_faults(row: dict[str, Any]) -> Iterator[Fault]:
    found = faults(
        row["valid"],
        row["count"],
        row.get("nonfinite", 0),
        row["max"],
        row["sum"],
        row.get("sum_sq"),
        row.get("total"),
        row.get("ulp_max"),
    )
    return (Fault((name,), reason) for name, reason in found)


def _rule_faults(row: dict[str, Any], rules: RuleSet) -> Iterator[Fault]:
    if not row.get("rule") and rules.scalar_rule(row["key"]) is None:
        yield Fault(("rule",), "is missing, and the rules file has none for this key")


def _refusal(found: Iterator[Fault]) -> Inconsistent:
    listed = [field_error(reason, *tokens) for tokens, reason in islice(found, MAX_FAULTS)]
    return Inconsistent(listed or [field_error("cannot be taken")])
