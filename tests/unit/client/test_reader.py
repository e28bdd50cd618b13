"""What a trainer reads back, where something else than an aggregator answers."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rankfold_client.reading import Reader
from rankfold_client.transport import Transport


class Saying:
    """Says one thing, whatever it is asked."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer

    def read(self, *_: object) -> dict[str, Any]:
        """Say it."""
        return self.answer


def reader(answer: dict[str, Any]) -> Reader:
    """Return a reader for which no time goes by."""
    transport = cast("Transport", Saying(answer))
    return Reader(transport, "p", "r", clock=lambda: 0.0, sleep=lambda _: None)


COMPLETE = {"iteration": 0, "complete": True, "keys": {"k": 1, "n": "NaN"}}


def test_folds_are_read_out_of_a_page() -> None:
    """Words are numbers, and integers stay such."""
    keys = reader({"items": [COMPLETE]}).folded(0, 0.0, None)["keys"]
    assert repr(keys) == "{'k': 1, 'n': nan}"


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"items": None},
        {"items": [None]},
        {"items": [{}]},
        {"items": [COMPLETE | {"keys": []}]},
        {"items": [COMPLETE | {"keys": {"k": [1]}}]},
        {"items": [COMPLETE | {"iteration": 9}]},
    ],
)
def test_what_is_no_answer_is_no_error_of_ours(answer: dict[str, Any]) -> None:
    """Training sees one kind of error where nobody answers as an aggregator does."""
    with pytest.raises(TimeoutError, match="what answered is no aggregator"):
        reader(answer).folded(0, 0.0, None)
    with pytest.raises(TimeoutError, match="what answered is no aggregator"):
        reader(answer).gate(0, 0.0, {})


NOT_COMPLETE = {"iteration": 0, "complete": False, "keys": {}}
OWED = {"iteration": 0, "attempt": 0, "rank": 1, "series": None, "microbatches": []}


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ({}, "a rank or a microbatch is missing"),
        ({"missing": None}, "a rank or a microbatch is missing"),
        ({"missing": [OWED | {"rank": "\x1b"}]}, "a rank or a microbatch is missing"),
        ({"missing": []}, "a rank or a microbatch is missing"),
        ({"missing": [OWED]}, "it lacks the end of it from rank 1"),
    ],
)
def test_timeout_says_what_is_missing_where_that_is_told(
    verdict: dict[str, Any], words: str
) -> None:
    """What is no verdict adds nothing, and what came meanwhile is not missing."""
    answer = {"items": [NOT_COMPLETE], "iterations": {"last": 0}} | verdict
    with pytest.raises(TimeoutError, match=f"iteration 0 is not complete: {words}$"):
        reader(answer).folded(0, 0.0, None)
