"""Asks the aggregator what it has folded, and waits until that is all there is to come."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, cast

from rankfold.answers import GateAnswer
from rankfold.errors import (
    Forbidden,
    NotFound,
    RankfoldError,
    Unauthenticated,
    Unavailable,
    Unreachable,
)
from rankfold_client.transport import Query, Transport, run_path

FIRST_POLL = 0.05
MOST_POLL = 1.0
# However little time is left, a question may take as long as an answer does in good health.
LEAST_WITHIN = 0.5
# How many ranks, and of microbatches and series, an error names.
MOST_NAMED = 10
_WORDS = frozenset({"NaN", "Infinity", "-Infinity"})

Answer = dict[str, Any]


class Folded(TypedDict):
    """What an iteration folded to.

    Attributes:
        iteration: as asked for.
        complete: always true: an iteration that is not complete is waited for.
        keys: the value of every key, by name; None where nothing was folded. Counts are exact
            integers of any size.
    """

    iteration: int
    complete: bool
    keys: dict[str, int | float | None]


class Reader:
    """Reads one run.

    Args:
        transport: what asks.
        project: the run's.
        run: its name.
        clock: seconds that only grow.
        sleep: waits for some seconds.
    """

    def __init__(
        self,
        transport: Transport,
        project: str,
        run: str,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport, self._names = transport, (project, run)
        self._clock, self._sleep = clock, sleep

    def folded(self, iteration: int, deadline: float, keys: Sequence[str] | None) -> Folded:
        """Return what an iteration folded to, once it is complete.

        Args:
            iteration: which.
            deadline: until when to wait, on the clock.
            keys: only these; None is all.

        Raises:
            TimeoutError: it was not complete in time, and what it lacks; or nothing answered.
            RankfoldError: the aggregator refuses to say.
        """
        query: Query = {"from": iteration, "to": iteration, "key": keys}
        page = self._wait(
            "iterations", query, deadline, lambda page: bool(_complete(page, iteration))
        )
        if not (item := _complete(page, iteration)):
            raise TimeoutError(f"iteration {iteration} is not complete: {self._lack(iteration)}")
        numbers = {name: float(v) if v in _WORDS else v for name, v in item["keys"].items()}
        return {"iteration": iteration, "complete": True, "keys": numbers}

    def gate(self, iteration: int, deadline: float, policy: Query) -> GateAnswer:
        """Return the verdict on everything up to an iteration, once nothing can change it.

        Where that is not so in time, the verdict of that moment.

        Args:
            iteration: the last one that is judged.
            deadline: until when to wait, on the clock.
            policy: what the verdict's query has beside the range.

        Raises:
            TimeoutError: nothing answered in time, or it does not know the iteration yet.
            RankfoldError: the aggregator refuses to say.
        """
        # More positions can bring a mean down, and nothing else that fails.
        mends = policy.get("max_diff_mean") is not None
        may_lack = policy.get("allow_absent") is not None

        def is_final(answer: Answer) -> bool:
            if answer["gate"] == "invalid" or (answer["gate"] == "fail" and not mends):
                return True
            return _is_whole(answer, iteration, may_lack)

        answer = self._wait("gate", {**policy, "to": iteration}, deadline, is_final)
        if answer["gate"] == "pass" and not _is_whole(answer, iteration, may_lack):
            raise TimeoutError(f"iteration {iteration} is not complete: {self._lack(iteration)}")
        return cast("GateAnswer", answer)

    def _wait(
        self, what: str, query: Query, deadline: float, is_final: Callable[[Answer], bool]
    ) -> Answer:
        """Ask again and again until an answer is final; return the last one."""
        pause, path = FIRST_POLL, run_path(*self._names, what)
        answer: Answer | RankfoldError
        while True:
            left = deadline - self._clock()
            try:
                answer = self._ask(path, query, max(LEAST_WITHIN, left))
            except (NotFound, Unreachable, Unavailable) as error:
                answer, pause = error, max(pause, getattr(error, "retry_after", 0.0))
            if not isinstance(answer, RankfoldError):
                try:
                    if is_final(answer):
                        return answer
                except (LookupError, TypeError, AttributeError):
                    answer = Unreachable("what answered is no aggregator: it says something else")
            left = deadline - self._clock()
            if left <= 0:
                break
            self._sleep(min(pause, left))
            pause = min(MOST_POLL, 1.5 * pause)
        if isinstance(answer, RankfoldError):
            raise TimeoutError(f"there is no answer: {answer}") from answer
        return answer

    def _lack(self, iteration: int) -> str:
        """Return what an iteration lacks, in words, as the verdict on it alone names it."""
        path = run_path(*self._names, "gate")
        try:
            verdict = self._ask(path, {"from": iteration, "to": iteration}, LEAST_WITHIN)
            told = _lacking(cast("GateAnswer", verdict))
        except (RankfoldError, LookupError, TypeError, AttributeError, ValueError):
            told = ""
        return told or "a rank or a microbatch is missing"

    def _ask(self, path: str, query: Query, within: float) -> Answer:
        try:
            answer = self._transport.read(path, query, within)
        except (Unauthenticated, Forbidden) as error:
            raise type(error)(f"{error}; reading needs a token with the scope read") from error
        return answer


def _complete(page: Answer, iteration: int) -> Answer | None:
    """Return the one iteration of a page, if it is complete."""
    for item in page["items"]:
        values = item["keys"].values()
        if item["iteration"] != iteration or any(isinstance(v, dict | list) for v in values):
            raise TypeError("this is not what was asked for")
        if item["complete"] is True:
            return cast("Answer", item)
    return None


def _lacking(verdict: GateAnswer) -> str:
    """Return what the verdict on one iteration misses; nothing where that came meanwhile."""
    if verdict["iterations"]["last"] is None:
        return f"0 of {verdict['ranks']['expected']} ranks have reported it"
    ranks: dict[str, list[int]] = {}
    for owed in verdict["missing"]:
        what = "the end of it"
        if owed["series"] is not None:
            what = f"{_some('microbatch', 'es', owed['microbatches'])} of {owed['series']!r}"
        ranks.setdefault(what, []).append(owed["rank"])
    told = [f"{what} from {_some('rank', 's', of)}" for what, of in ranks.items()]
    more = ["more"] * (len(told) > MOST_NAMED)
    return f"it lacks {'; '.join(told[:MOST_NAMED] + more)}" if told else ""


def _some(word: str, ending: str, numbers: list[int]) -> str:
    """Return the first of some numbers after the word for them."""
    named = ", ".join(f"{number:d}" for number in numbers[:MOST_NAMED])
    more = " and more" if len(numbers) > MOST_NAMED else ""
    return f"{word}{ending if len(numbers) > 1 else ''} {named}{more}"


def _is_whole(answer: Answer, iteration: int, may_lack: bool) -> bool:
    """Say whether every iteration up to this one, and this one too, is there in full.

    Args:
        answer: the verdict.
        iteration: the last one.
        may_lack: whether one is in full too that no rank reported a series for.
    """
    seen = answer["iterations"]
    absent = 0 if may_lack else seen["absent_count"]
    return seen["last"] == iteration and not seen["incomplete_count"] and not absent
