"""A gate's answer as text: the verdict and its reasons first, then what they rest on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rankfold_service.cli.tables import Column, table
from rankfold_service.cli.text import Screen, number, plain, visible
from rankfold_service.cli.views import worst_table

SHOWN_NUMBERS = 20
SHOWN_LINES = 10

SERIES_COLUMNS = (
    Column("series", group=True),
    Column("mismatch_count", number=True),
    Column("valid_count", number=True, drop=1),
    Column("nonfinite_count", number=True, drop=2),
    Column("diff_max", number=True, drop=3),
    Column("diff_mean", number=True, drop=4),
)

Item = dict[str, Any]


def verdict_text(answer: Item, screen: Screen, *, offline: bool = False) -> str:
    """Return the verdict on a run for a person to read.

    Args:
        answer: the gate's.
        screen: where the text goes.
        offline: the run is a comparison of two files, which has no ranks and is always finished.
    """
    blocks = [
        _head(answer, screen, offline),
        _series(answer["series"], screen),
        "\n".join(_coverage(answer, screen, offline)),
        _worst(answer["worst"], screen),
    ]
    return "\n\n".join(filter(None, blocks))


def _head(answer: Item, screen: Screen, offline: bool) -> str:
    name = visible(answer["run"] if offline else f"{answer['project']}/{answer['run']}")
    state = "" if offline else f" ({answer['state']}{', live' if answer['live'] else ''})"
    reasons = [f"  {visible(reason)}" for reason in answer["reasons"]]
    return "\n".join([f"{screen.gate(answer['gate'])}  {name}{state}", *reasons])


def _series(series: dict[str, Item], screen: Screen) -> str:
    if not series:
        return ""
    rows = [
        [name, *(number(figures[column.title]) for column in SERIES_COLUMNS[1:])]
        for name, figures in series.items()
    ]
    return table(SERIES_COLUMNS, rows, screen)


def _coverage(answer: Item, screen: Screen, offline: bool) -> Iterator[str]:
    reported = (
        *_ranks(answer["ranks"]),
        *(("missing", line) for line in _first(map(_missing, answer["missing"]))),
        ("conflicts", number(answer["conflicts"])),
        *(("conflict", line) for line in _first(map(_conflict, answer["conflict_details"]))),
        ("dropped", number(answer["dropped"])),
    )
    for heading, line in (
        *_iterations(answer["iterations"]),
        *(_lacking(answer["missing"]) if offline else reported),
    ):
        yield f"{screen.heading(heading)}{' ' * (12 - len(heading))}{line}"


def _iterations(iterations: Item) -> Iterator[tuple[str, str]]:
    if iterations["first"] is None:
        yield "iterations", "none"
        return
    incomplete, absent = iterations["incomplete_count"], iterations["absent_count"]
    counts = f"{iterations['complete']:,} complete, {incomplete:,} incomplete, {absent:,} absent"
    yield "iterations", f"{iterations['first']} to {iterations['last']}: {counts}"
    for state, total in (
        ("incomplete", incomplete),
        ("absent", absent),
        ("in_progress", len(iterations["in_progress"])),
    ):
        if total:
            yield state.replace("_", " "), _which("iteration", iterations[state], total)


def _ranks(ranks: Item) -> Iterator[tuple[str, str]]:
    source = "the world size" if ranks["expected_from"] == "world_size" else "those that reported"
    reporting, expected = ranks["reporting"], ranks["expected"]
    yield "ranks", f"{reporting} of {expected} reported (expected by {source})"
    if ranks["missing"]:
        yield "missing", _which("rank", ranks["missing"], expected - reporting)


def _lacking(missing: list[Item]) -> Iterator[tuple[str, str]]:
    """Yield what one of two files lacks."""
    for line in _first(f"iteration {each['iteration']}: {_owed(each)}" for each in missing):
        yield "missing", line


def _missing(missing: Item) -> str:
    where = (
        f"iteration {missing['iteration']}, attempt {missing['attempt']}, rank {missing['rank']}"
    )
    return f"{where}: {_owed(missing)}"


def _owed(missing: Item) -> str:
    if missing["series"] is None:
        return "its commit"
    microbatches = missing["microbatches"]
    owed = f"microbatch {_listed(microbatches, len(microbatches))}" if microbatches else "all of it"
    return f"{owed} of {visible(missing['series'])}"


def _conflict(conflict: Item) -> str:
    rank = "all ranks" if conflict["rank"] is None else f"rank {conflict['rank']}"
    return visible(
        f"iteration {conflict['iteration']}, attempt {conflict['attempt']}, {rank}: "
        f"{conflict['kind']} {conflict['name']}: {conflict['reason']}"
    )


def _which(word: str, numbers: list[int], total: int) -> str:
    """Return which ones are meant, such that a lone 0 is not taken for a count."""
    return f"{word if total == 1 else word + 's'} {_listed(numbers, total)}"


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
