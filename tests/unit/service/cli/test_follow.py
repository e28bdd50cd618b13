"""What a follower of a run is told of, and how it reads."""

from __future__ import annotations

from typing import Any

import pytest

from rankfold_service.cli.event_text import event_text, keys_of
from rankfold_service.cli.follow import Event, Follower, Window
from rankfold_service.cli.text import Screen

A, B = "training/rollout_logprobs", "ref"


def run_of(*launches: tuple[int, float, int | None]) -> dict[str, Any]:
    """Return a run with attempts of a number, a first report and a first iteration."""
    attempts = [
        {"attempt": n, "first_report": at, "first_iteration": first, "reporting": 1}
        for n, at, first in launches
    ]
    run = {"project": "p", "run": "r", "state": "running", "world_size": 2}
    return {**run, "attempts": attempts}


def verdict(last: int | None, *in_progress: int, state: str = "running") -> dict[str, Any]:
    """Return what a follower looks at of a verdict."""
    iterations = {"last": last, "in_progress": list(in_progress)}
    iterations |= {"incomplete": [], "incomplete_count": 0}
    return {"gate": "pass", "state": state, "iterations": iterations, "reasons": ["fine"]}


def told(follower: Follower, *numbers: int) -> list[int]:
    """Let a follower tell of iterations; return which it told of."""
    items = [{"iteration": number, "complete": True, "keys": {}} for number in numbers]
    return [event.body["iteration"] for event in follower.iterations(items)]


@pytest.mark.parametrize(
    ("first", "gate", "window"),
    [
        (None, verdict(None), None),
        (None, verdict(0, 0), None),
        (None, verdict(5), Window(0, 5)),
        (None, verdict(5, 4, 5), Window(0, 3)),
        (None, verdict(100), Window(91, 100)),
        (None, verdict(100, 99, 100), Window(91, 98)),
        (0, verdict(100, 100), Window(0, 99)),
        (101, verdict(100), None),
        (7, verdict(100, 101), Window(7, 100)),  # no data of it yet
        (None, verdict(100, state="finished"), Window(91, None)),
        (None, verdict(None, state="stale"), Window(0, None)),
    ],
)
def test_iterations_are_read_up_to_the_first_in_progress(
    first: int | None, gate: dict[str, Any], window: Window | None
) -> None:
    """From the last few on, or where the reader says; all that is left once the run is over."""
    assert Follower(first).window(gate) == window


def test_each_iteration_is_told_of_once() -> None:
    """Also where reading broke off half way, and where numbers are missing."""
    follower = Follower(None)
    assert follower.window(verdict(3)) == Window(0, 3)
    assert told(follower, 0, 1) == [0, 1]
    assert follower.window(verdict(3)) == Window(2, 3)
    assert told(follower, 3) == [3]
    assert follower.window(verdict(4, 4)) is None
    assert follower.window(verdict(60, 60)) == Window(4, 59)


def test_a_run_that_begins_late_is_told_of_from_its_beginning() -> None:
    """Who was there before the first iteration misses none."""
    follower = Follower(None)
    assert follower.window(verdict(None)) is None
    assert follower.window(verdict(40)) == Window(0, 40)


@pytest.mark.parametrize(
    ("before", "after", "attempt", "window"),
    [
        ([(0, 1.0, 0)], [(0, 1.0, 0), (1, 9.0, 5)], (1, 5, False), Window(5, 20)),
        ([(0, 1.0, 0)], [(0, 1.0, 0), (1, 9.0, 30)], (1, 30, False), Window(20, 20)),
        ([(0, 1.0, 0)], [(0, 1.0, 0), (1, 8.0, 5), (2, 9.0, 9)], (2, 5, False), Window(5, 20)),
        ([(0, 1.0, 0)], [(0, 9.0, 2)], (0, 2, True), Window(2, 20)),
        ([(0, 1.0, 0), (1, 2.0, 9)], [(0, 9.0, 2)], (0, 2, True), Window(2, 20)),
        ([(0, 1.0, 3), (1, 2.0, 9)], [(0, 1.0, 3), (1, 2.0, 8)], (1, 8, False), Window(8, 20)),
        ([(0, 1.0, 3), (1, 2.0, 9)], [(0, 1.0, 1), (1, 2.0, 9)], None, Window(20, 20)),
        ([(0, 1.0, 0)], [(0, 1.0, 0), (1, 9.0, None)], None, Window(20, 20)),
        ([(0, 1.0, None)], [(0, 1.0, 0)], None, Window(20, 20)),
    ],
)
def test_what_a_new_launch_supersedes_is_told_of_again(
    before: list[tuple[int, float, int | None]],
    after: list[tuple[int, float, int | None]],
    attempt: tuple[int, int, bool] | None,
    window: Window,
) -> None:
    """A restart, or several, and a run that was deleted; but no late report of an old launch."""
    follower = Follower(None)
    assert [event.kind for event in follower.run(run_of(*before))] == ["run"]
    follower.window(verdict(19))
    told(follower, *range(10, 20))
    events = list(follower.run(run_of(*after)))
    words = ("attempt", "first_iteration", "anew")
    expected = [] if attempt is None else [Event("attempt", dict(zip(words, attempt, strict=True)))]
    assert events == expected
    assert follower.window(verdict(20)) == window
    assert list(follower.run(run_of(*after))) == []


def test_a_restart_before_anything_was_read_changes_nothing() -> None:
    """The first window is that of the first look."""
    follower = Follower(None)
    list(follower.run(run_of((0, 1.0, 0))))
    assert [e.kind for e in follower.run(run_of((0, 1.0, 0), (1, 2.0, 5)))] == ["attempt"]
    assert follower.window(verdict(100)) == Window(91, 100)


def lacking(*incomplete: int, in_progress: tuple[int, ...] = (), more: int = 0) -> dict[str, Any]:
    """Return a verdict on iterations of which some are incomplete, and more than it lists."""
    gate = verdict(20, *in_progress)
    gate["iterations"] |= {
        "incomplete": list(incomplete),
        "incomplete_count": len(incomplete) + more,
    }
    return gate


def test_an_iteration_that_is_complete_after_all_is_told_of_again() -> None:
    """Once, when the verdict does not count it as incomplete any more, nor as in progress."""
    follower = Follower(0)
    items = [{"iteration": n, "complete": n not in (3, 5, 8), "keys": {}} for n in range(10)]
    assert len(list(follower.iterations(items))) == 10
    assert follower.late_window(lacking(3, 5, 8)) is None
    assert follower.late_window(lacking(3, 5, in_progress=(8,))) is None
    assert follower.late_window(lacking(3, 5, more=4)) is None  # 8 may be one of the others
    assert follower.late_window(lacking(5, 9, more=4)) == Window(3, 8)
    assert follower.late_window(lacking(5)) == Window(3, 8)
    again = [{**item, "complete": item["iteration"] != 5} for item in items[3:9]]
    assert [event.body["iteration"] for event in follower.late(again)] == [3, 8]
    assert follower.late_window(lacking(5)) is None
    assert follower.window(verdict(10)) == Window(10, 10)
    list(follower.run(run_of((0, 1.0, 0))))
    list(follower.run(run_of((0, 1.0, 0), (1, 2.0, 4))))
    assert follower.late_window(lacking()) is None  # it is read anew with what follows


def test_a_verdict_is_told_of_when_it_is_another_one() -> None:
    """Not at every look."""
    follower = Follower(None)
    words = ["pass", "pass", "fail", "fail", "pass"]
    gates = [verdict(0) | {"gate": word} for word in words]
    assert [len(list(follower.gate(gate))) for gate in gates] == [1, 0, 1, 0, 1]


def item(complete: bool = True, **figures: Any) -> dict[str, Any]:
    """Return an iteration in which one series mismatches and the other does not."""
    values = dict(zip(keys_of([A]), (3, 4096, 0, 7.450580596923828e-09, 1e-12), strict=True))
    values |= dict(zip(keys_of([B]), (0, 2048, 0, 0.0, 0.0), strict=True))
    return {"iteration": 13, "complete": complete, "keys": values | figures}


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (None, f"{A}: 3 of 4,096, max 7.45058e-09, mean 1e-12  {B}: 0 of 2,048  loss: 0.5"),
        (108, f"{A}: 3 of 4,096, max 7.45058e-09, mean 1e-12  {B}: 0 of 2,048  loss: 0.5"),
        (
            107,
            f"{A}: 3 of 4,096, max 7.45058e-09, mean 1e-12  1 clean series  loss: 0.5",
        ),
        (106, f"{A}: 3 of 4,096, max 7.45058e-09  1 clean series  loss: 0.5"),
        (40, f"{A}: 3 of 4,096  1 clean series  loss: 0.5"),
    ],
)
def test_an_iteration_takes_a_line(width: int | None, line: str) -> None:
    """As much as there is room for; names stay whole."""
    shown = item(loss=0.5)
    text = event_text(Event("iteration", shown), [A, B], ["loss"], Screen(width))
    assert text == f"iteration 13  {line}"


def test_an_iteration_says_what_it_lacks() -> None:
    """Incomplete, without a series, with what is not finite, without a key."""
    odd = item(False, **{f"{A}_nonfinite_count": 2, f"{A}_diff_mean": None})
    text = event_text(Event("iteration", odd), [A, "none"], ["loss"], Screen(colour=True))
    assert text == (
        f"iteration 13  \x1b[33mincomplete\x1b[0m  "
        f"{A}: 3 of 4,096, 2 not finite, max 7.45058e-09  loss: -"
    )
    assert event_text(Event("iteration", odd), [], [], Screen()) == "iteration 13  incomplete  -"


def test_other_events_take_a_line(clean_run: dict[str, Any]) -> None:
    """And the last one what the gate prints."""
    for event, line in (
        (Event("run", run_of((0, 1.0, 0))), "p/r: running, attempt 0, 1 of 2 ranks"),
        (Event("run", run_of()), "p/r: running"),
        (
            Event("attempt", {"attempt": 1, "first_iteration": 5, "anew": False}),
            "attempt 1 reports from iteration 5",
        ),
        (
            Event("attempt", {"attempt": 0, "first_iteration": 5, "anew": True}),
            "the run was begun anew, from iteration 5",
        ),
        (Event("gate", {"gate": "pass", "reasons": ["fine"]}), "gate pass: fine"),
        (Event("gate", {"gate": "pass", "reasons": []}), "gate pass: no reason is given"),
        (
            Event("gate", {"gate": "fail", "reasons": ["a", "b", "c"]}),
            "gate fail: a (and 2 more reasons)",
        ),
    ):
        assert event_text(event, [], [], Screen()) == line
    text = event_text(Event("verdict", clean_run), [], [], Screen())
    assert text.startswith("\npass  default/qwen3 (finished)\n")
