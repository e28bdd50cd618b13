"""A gate's answer as text: the verdict and its reasons first, then what they rest on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rankfold_service.cli.reads import worst_table
from rankfold_service.cli.tables import Column, Screen, number, plain, table, visible

SHOWN_NUMBERS = 20
SHOWN_LINES = 10

SERIES_FIELDS = ("mismatch_count", "valid_count", "nonfinite_count", "diff_max", "diff_mean")

Item = dict[str, Any]


def verdict_text(answer: Item, screen: Screen) -> str:
    """Return the verdict on a run for a person to read."""
    blocks = [
        _head(answer, screen),
        _series(answer["series"], screen),
        "\n".join(_coverage(answer, screen)),
        _worst(answer["worst"], screen),
    ]
    return "\n\n".join(filter(None, blocks))


def _head(answer: Item, screen: Screen) -> str:
    name = visible(f"{answer['project']}/{answer['run']}")
    state = answer["state"] + (", live" if answer["live"] else "")
    reasons = [f"  {visible(reason)}" for reason in answer["reasons"]]
    return "\n".join([f"{screen.gate(answer['gate'])}  {name} ({state})", *reasons])


def _series(series: dict[str, Item], screen: Screen) -> str:
    if not series:
        return ""
    columns = [
        Column("series", name=True),
        *(Column(field, number=True) for field in SERIES_FIELDS),
    ]
    rows = [
        [name, *(number(figures[field]) for field in SERIES_FIELDS)]
        for name, figures in series.items()
    ]
    return table(columns, rows, screen)


def _coverage(answer: Item, screen: Screen) -> Iterator[str]:
    for heading, line in (
        *(("iterations", line) for line in _iterations(answer["iterations"])),
        *(("ranks", line) for line in _ranks(answer["ranks"])),
        *(("missing", line) for line in _first(map(_missing, answer["missing"]))),
        ("conflicts", number(answer["conflicts"])),
        *(("conflict", line) for line in _first(map(_conflict, answer["conflict_details"]))),
        ("dropped", number(answer["dropped"])),
    ):
        yield f"{screen.heading(heading)}{' ' * (12 - len(heading))}{line}"


def _iterations(iterations: Item) -> Iterator[str]:
    if iterations["first"] is None:
        yield "none"
        return
    incomplete, absent = iterations["incomplete_count"], iterations["absent_count"]
    yield (
        f"{iterations['first']} to {iterations['last']}: {iterations['complete']:,} complete, "
        f"{incomplete:,} incomplete, {absent:,} absent"
    )
    for word, total in (
        ("incomplete", incomplete),
        ("absent", absent),
        ("in_progress", len(iterations["in_progress"])),
    ):
        if total:
            yield f"{word}: {_listed(iterations[word], total)}"


def _ranks(ranks: Item) -> Iterator[str]:
    source = "the world size" if ranks["expected_from"] == "world_size" else "those that reported"
    yield f"{ranks['reporting']} of {ranks['expected']} reported (expected by {source})"
    if ranks["missing"]:
        yield f"missing: {_listed(ranks['missing'], ranks['expected'] - ranks['reporting'])}"


def _missing(missing: Item) -> str:
    where = (
        f"iteration {missing['iteration']}, attempt {missing['attempt']}, rank {missing['rank']}"
    )
    if missing["series"] is None:
        return f"{where}: its commit"
    microbatches = missing["microbatches"]
    owed = f"microbatch {_listed(microbatches, len(microbatches))}" if microbatches else "all of it"
    return f"{where}: {owed} of {visible(missing['series'])}"


def _conflict(conflict: Item) -> str:
    rank = "all ranks" if conflict["rank"] is None else f"rank {conflict['rank']}"
    return visible(
        f"iteration {conflict['iteration']}, attempt {conflict['attempt']}, {rank}: "
        f"{conflict['kind']} {conflict['name']}: {conflict['reason']}"
    )


def _listed(numbers: list[int], total: int) -> str:
    shown = ", ".join(map(plain, numbers[:SHOWN_NUMBERS]))
    more = total - min(len(numbers), SHOWN_NUMBERS)
    return f"{shown} and {more:,} more" if more > 0 else shown


def _first(lines: Iterable[str]) -> list[str]:
    known = list(lines)
    more = len(known) - SHOWN_LINES
    return known[:SHOWN_LINES] + ([f"and {more:,} more"] if more > 0 else [])


def _worst(worst: list[Item], screen: Screen) -> str:
    if not worst:
        return ""
    return f"{screen.heading('worst tokens')}\n{worst_table(worst[:SHOWN_LINES], screen)}"
