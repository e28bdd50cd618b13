"""What a follower of a run reads: each event as a line, as short as the screen needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rankfold_service.cli.follow import Event, Item
from rankfold_service.cli.text import NONE, Screen, counted, number, plain, visible, width_of
from rankfold_service.cli.verdict import verdict_text

GAP = "  "
FIGURES = ("mismatch_count", "valid_count", "nonfinite_count", "diff_max", "diff_mean")
# What is said of a series with mismatches, from all of it to the least.
DETAILS = (
    ("nonfinite_count", "diff_max", "diff_mean"),
    ("nonfinite_count", "diff_max"),
    ("nonfinite_count",),
)
WORDS = {"nonfinite_count": "{} not finite", "diff_max": "max {}", "diff_mean": "mean {}"}


def keys_of(series: Sequence[str]) -> list[str]:
    """Return the keys that an iteration's line is made from."""
    return [f"{name}_{figure}" for name in series for figure in FIGURES]


def event_text(event: Event, series: Sequence[str], keys: Sequence[str], screen: Screen) -> str:
    """Return an event for a person to read.

    Args:
        event: what to tell.
        series: those that an iteration's line is about.
        keys: further keys for it.
        screen: where it is shown; a line is as long as it needs to be where that has no edge.
    """
    match event.kind:
        case "iteration":
            return _iteration(event.body, series, keys, screen)
        case "run":
            return _run(event.body)
        case "attempt":
            return _attempt(event.body)
        case "gate":
            return _gate(event.body, screen)
        case _:
            return f"\n{verdict_text(event.body, screen)}"


def _run(run: Item) -> str:
    name = visible(f"{run['project']}/{run['run']}")
    if not run["attempts"]:
        return f"{name}: {run['state']}"
    latest = run["attempts"][-1]
    ranks = f"{latest['reporting']} of {plain(run['world_size'] or '?')} ranks"
    return f"{name}: {run['state']}, attempt {latest['attempt']}, {ranks}"


def _attempt(attempt: Item) -> str:
    if attempt["anew"]:
        return f"the run was begun anew, from iteration {attempt['first_iteration']}"
    return f"attempt {attempt['attempt']} reports from iteration {attempt['first_iteration']}"


def _gate(gate: Item, screen: Screen) -> str:
    first, *others = gate["reasons"] or ["no reason is given"]
    more = f" (and {counted(len(others), 'more reason')})" if others else ""
    return f"gate {screen.gate(gate['gate'])}: {visible(first)}{more}"


def _iteration(item: Item, series: Sequence[str], keys: Sequence[str], screen: Screen) -> str:
    """Return the longest of the lines that fits, or the shortest one."""
    plain_screen = Screen()
    for line in _lines(item, series, keys):
        shown = line(plain_screen)
        if screen.width is None or width_of(shown) <= screen.width:
            break
    return line(screen)


def _lines(
    item: Item, series: Sequence[str], keys: Sequence[str]
) -> Iterator[Callable[[Screen], str]]:
    reported = {name: figures for name in series if (figures := _figures(name, item["keys"]))}
    clean = [name for name, figures in reported.items() if figures["mismatch_count"] == 0]
    others = [f"{visible(key)}: {number(item['keys'].get(key))}" for key in keys]
    told = [_series(name, figures, DETAILS[0]) for name, figures in reported.items()]
    yield _line(item, [*told, *others])
    for details in DETAILS:
        told = [_series(n, f, details) for n, f in reported.items() if n not in clean]
        rest = [counted(len(clean), "clean series", "clean series")] if clean else []
        yield _line(item, [*told, *rest, *others])


def _line(item: Item, parts: list[str]) -> Callable[[Screen], str]:
    def line(screen: Screen) -> str:
        state = [] if item["complete"] else [screen.gate("incomplete")]
        return GAP.join([f"iteration {item['iteration']}", *state, *(parts or [NONE])])

    return line


def _figures(series: str, keys: Item) -> Item:
    """Return what an iteration has of a series; empty where it was not reported."""
    found = {figure: keys.get(f"{series}_{figure}") for figure in FIGURES}
    return found if any(value is not None for value in found.values()) else {}


def _series(name: str, figures: Item, details: Sequence[str]) -> str:
    count, valid = figures["mismatch_count"], figures["valid_count"]
    parts = [f"{number(count)} of {number(valid)}"]
    if count != 0:
        parts += [WORDS[d].format(number(figures[d])) for d in details if figures[d]]
    return f"{visible(name)}: {', '.join(parts)}"
