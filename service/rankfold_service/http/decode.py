"""A request's bytes to a `Report`: shapes as they are described, then what holds between fields.

Both forms of a list end as columns. Whole columns are checked at once; the reasons are looked
for row by row only in what is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, compress, islice
from operator import eq, ge, not_
from typing import Any

from msgspec import UNSET
from msgspec.structs import astuple, fields

from rankfold.errors import FieldError, Inconsistent, TooLarge
from rankfold.names import name_fault
from rankfold.partial import PartialColumns, Worst, faults, number_from_json
from rankfold.rules import Rule, RuleSet
from rankfold.wire import MAX_ITEMS, Commit, Report, ScalarColumns, field_error
from rankfold_service.http.parse import MAX_FAULTS, parse
from rankfold_service.http.quick import QuickReader
from rankfold_service.http.shapes import FINISH, REPORT, ReportBody

_REPORTS = QuickReader(REPORT, ReportBody)
_HEADER = ("project", "run", "attempt", "rank", "world_size", "meta", "dropped")

Columns = dict[str, list[Any]]
Locate = Callable[[int, str], tuple[str | int, ...]]


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
    sent = _REPORTS.read(body)
    partials, partial_place = _columns(sent.partials, "partials", max_items)
    scalars, scalar_place = _columns(sent.scalars, "scalars", max_items)
    commits, _ = _columns(sent.commits, "commits", max_items)
    known = _rules(scalars, rules) if scalars else []
    report = Report(
        **{name: said for name in _HEADER if (said := getattr(sent, name)) is not UNSET},
        partials=_partials(partials) if partials else PartialColumns(),
        scalars=_scalars(scalars, known) if scalars else ScalarColumns(),
        commits=[*map(Commit, commits["iteration"], commits["microbatches"])] if commits else [],
    )
    found = [_header_faults(report)]
    if partials:
        found.append(_name_faults(report.partials.series, "series", partial_place))
        if not consistent(report.partials):
            found.append(_partial_faults(report.partials, partial_place))
    if scalars:
        found.append(_name_faults(report.scalars.key, "key", scalar_place))
        found.append(_rule_faults(report.scalars.key, known, scalar_place))
    _refuse(chain.from_iterable(found))
    return report


def decode_finish(body: bytes) -> int:
    """Return the attempt that a body says is finished.

    Raises:
        MalformedBody: it is not JSON.
        Inconsistent: it is not an object with an attempt.
    """
    return parse(body, FINISH)["attempt"]


def _columns(sent: Any, name: str, max_items: int) -> tuple[Columns, Locate]:
    """Return a list as columns of one length, and how to say where a value stands."""
    if not sent:  # as most reports have it of two lists of the three
        return {}, _in_rows(name)
    if isinstance(sent, list):
        columns, locate = _transposed(sent), _in_rows(name)
    else:
        columns = _members(sent)
        locate = _in_columns(name, columns)
    lengths = [*map(len, columns.values())]
    longest = max(lengths, default=0)
    if longest > max_items:
        raise TooLarge(f"{name} has {longest} items; {max_items} are allowed in one report")
    if lengths.count(longest) < len(lengths):
        _refuse(
            field_error(f"has {length} items where the longest column has {longest}", name, member)
            for member, length in zip(columns, lengths, strict=True)
            if length != longest
        )
    return columns, locate


def _in_columns(name: str, sent: Columns) -> Locate:
    """Say where a value stands; one of a column that was not sent is missing as a whole."""
    return lambda index, member: (name, member, index) if member in sent else (name, member)


def _in_rows(name: str) -> Locate:
    return lambda index, member: (name, index, member)


def _members(sent: Any) -> Columns:
    """Return the columns that were sent, by name."""
    members = zip(sent.__struct_fields__, astuple(sent), strict=True)
    return {name: column for name, column in members if column is not UNSET}


def _transposed(rows: Sequence[Any]) -> Columns:
    """Return rows as columns; what only some of them leave out is None there."""
    columns: Columns = {}
    values = zip(*map(astuple, rows), strict=True)
    for (name, required), column in zip(_of_row(rows[0].__class__), values, strict=True):
        if required or UNSET not in column:
            columns[name] = list(column)
        elif column.count(UNSET) < len(column):
            columns[name] = [None if value is UNSET else value for value in column]
    return columns


@cache
def _of_row(kind: type) -> list[tuple[str, bool]]:
    """Return the members of a row's type, and whether each must be sent."""
    return [(member.name, member.required) for member in fields(kind)]


def _partials(columns: Columns) -> PartialColumns:
    worst = _optional(columns.get("worst"))
    return PartialColumns(
        columns["series"],
        columns["iteration"],
        columns["microbatch"],
        columns["count"],
        columns["valid"],
        _filled(columns.get("nonfinite"), 0, len(columns["series"])),
        columns["max"],
        columns["sum"],
        _optional(columns.get("sum_sq")),
        _optional(columns.get("ulp_max")),
        _optional(columns.get("total")),
        worst and [value and _worst(value) for value in worst],
    )


def _optional(column: list[Any] | None) -> list[Any] | None:
    """Return a column, or None where it holds nothing."""
    return column if column and column.count(None) < len(column) else None


def _filled(column: list[Any] | None, default: Any, size: int) -> list[Any]:
    """Return a column in which what was left out is the default."""
    if column is None:
        return [default] * size
    return [default if value is None else value for value in column] if None in column else column


def _worst(value: Any) -> Worst:
    row, column = value.position
    a, b = number_from_json(value.a), number_from_json(value.b)
    token_id, sample = (None if v is UNSET else v for v in (value.token_id, value.sample))
    return Worst((row, column), a, b, value.ulp, token_id, sample)


def _rules(columns: Columns, rules: RuleSet) -> list[Rule | None]:
    """Return each scalar's rule: what was sent, else what the rules file says."""
    keys = columns["key"]
    said = _filled(columns.get("rule"), None, len(keys))
    return [
        rules.scalar_rule(key) if word is None else Rule(word)
        for word, key in zip(said, keys, strict=True)
    ]


def _scalars(columns: Columns, rules: list[Rule | None]) -> ScalarColumns:
    keys = columns["key"]
    return ScalarColumns(
        key=keys,
        iteration=columns["iteration"],
        microbatch=columns["microbatch"],
        value=[number_from_json(value) for value in columns["value"]],
        weight=_filled(columns.get("weight"), 1, len(keys)),
        rule=[rule for rule in rules if rule],
        is_global=_filled(columns.get("global"), False, len(keys)),
    )


def consistent(partials: PartialColumns) -> bool:
    """Whether no partial breaks an invariant: `rankfold.partial.faults`, over whole columns."""
    count, valid, nonfinite = partials.count, partials.valid, partials.nonfinite
    return (
        all(map(ge, valid, count))
        and (not any(nonfinite) or all(map(ge, count, nonfinite)))
        and _nulls_fit(partials)
        and (0 not in count or _zero_where(map(not_, count), partials, partials.max))
        # Here the maximum is null where no position is finite, and only there.
        and (None not in partials.max or _zero_where((m is None for m in partials.max), partials))
        and not any(
            t is not None and t < v for t, v in zip(partials.total or (), valid, strict=False)
        )
    )


def _nulls_fit(partials: PartialColumns) -> bool:
    """Whether the maximum is null where no position is finite, and only there."""
    valid, nonfinite, maxima = partials.valid, partials.nonfinite, partials.max
    if None not in maxima and not any(nonfinite):
        return all(valid)
    return [value is None for value in maxima] == list(map(eq, valid, nonfinite))


def _zero_where(
    wanted: Iterable[bool], partials: PartialColumns, maxima: Sequence[float | None] = ()
) -> bool:
    """Whether the sums, and these maxima, are 0 in the rows that are wanted."""
    rows = [*wanted]
    columns = (maxima, partials.sum, partials.sum_sq or ())
    return not any(map(any, (compress(column, rows) for column in columns)))


def _header_faults(report: Report) -> Iterator[FieldError]:
    for member in ("project", "run"):
        reason = name_fault(getattr(report, member), in_path=True)
        if reason:
            yield field_error(reason, member)
    if report.world_size is not None and report.rank >= report.world_size:
        yield field_error(f"is not below the world size {report.world_size}", "rank")


def _name_faults(names: Sequence[str], member: str, place: Locate) -> Iterator[FieldError]:
    wrong = {name: reason for name in set(names) if (reason := name_fault(name))}
    if wrong:
        for index, name in enumerate(names):
            if name in wrong:
                yield field_error(wrong[name], *place(index, member))


def _partial_faults(partials: PartialColumns, place: Locate) -> Iterator[FieldError]:
    nothing = [None] * len(partials)
    rows = zip(
        partials.valid,
        partials.count,
        partials.nonfinite,
        partials.max,
        partials.sum,
        partials.sum_sq or nothing,
        partials.total or nothing,
        strict=True,
    )
    for index, row in enumerate(rows):
        for member, reason in faults(*row):
            yield field_error(reason, *place(index, member))


def _rule_faults(
    keys: Sequence[str], rules: list[Rule | None], place: Locate
) -> Iterator[FieldError]:
    told = None
    for index, (key, rule) in enumerate(zip(keys, rules, strict=True)):
        where = place(index, "rule")
        if rule is None and where != told:  # a column that was not sent is told of once
            yield field_error(f"is missing, and the rules file has none for {key!r}", *where)
            told = where


def _refuse(found: Iterable[FieldError]) -> None:
    """Refuse the report if there is any fault."""
    listed = list(islice(found, MAX_FAULTS))
    if listed:
        raise Inconsistent(listed)
