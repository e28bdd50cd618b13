"""The entries of a reporter: what a trainer says, checked, numbered and handed over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat

from torch import Tensor

from rankfold.partial import MAX_COUNT, Partial
from rankfold.rules import SCALAR_RULES
from rankfold_client.checks import check_name, checked_partial, to_index, to_integer, to_number
from rankfold_client.compare import begin
from rankfold_client.counts import Counts
from rankfold_client.items import FINISH, Item, commit_item, partial_item, scalar_item
from rankfold_client.pending import Pending


class Recorder(ABC):
    """Counts iterations and microbatches, and makes an item of everything that is reported.

    Args:
        put: takes an item, and never waits for the network.
        put_pending: takes what an accelerator still computes, and what makes an item of it.
        iteration: the first one.
    """

    def __init__(
        self,
        put: Callable[[Item], None],
        put_pending: Callable[[Pending, Callable[[Partial], Item]], None],
        iteration: int,
    ) -> None:
        self._put, self._put_pending = put, put_pending
        self._iteration = to_index("iteration", iteration)
        self._series_counts = Counts()
        self._key_counts = Counts()

    @property
    def iteration(self) -> int:
        """The iteration that the next report belongs to."""
        return self._iteration

    def compare(
        self,
        series: str,
        a: Tensor,
        b: Tensor,
        mask: Tensor | None = None,
        *,
        iteration: int | None = None,
        microbatch: int | None = None,
        token_ids: Tensor | None = None,
        sample_ids: Sequence[Any] | None = None,
    ) -> None:
        """Report how far `a` (trainer) is from `b` (rollout) in one microbatch.

        On an accelerator nothing waits: the comparison is queued behind what the caller's stream
        does, and read by the background once it is there. A mask that only the accelerator can
        find wrong is told in the log then, and the microbatch counts as dropped.

        Args:
            series: what the partial is reported under.
            a: see `rankfold_client.compare`, as for `b`, `mask`, `token_ids`, `sample_ids`.
            b: likewise.
            mask: likewise.
            iteration: becomes the current one; None leaves it.
            microbatch: index within the iteration; None counts the series' calls.
            token_ids: likewise.
            sample_ids: likewise.

        Raises:
            ValueError: the tensors, the mask or a name cannot be compared or reported.
            RuntimeError: the reporter is closed, or a CUDA graph is being captured.
        """
        self._check_open()
        check_name("series", series)
        found = begin(a, b, mask, token_ids=token_ids, sample_ids=sample_ids)
        if isinstance(found, Partial):
            self.partial(series, found, iteration=iteration, microbatch=microbatch)
            return
        place = self._place(self._series_counts, series, iteration, microbatch)
        self._put_pending(found, lambda p: partial_item(series, *place, checked_partial(p)))

    def partial(
        self,
        series: str,
        partial: Partial,
        *,
        iteration: int | None = None,
        microbatch: int | None = None,
    ) -> None:
        """Report statistics of one microbatch that were computed elsewhere.

        Args:
            series: what the partial is reported under.
            partial: the statistics.
            iteration: becomes the current one; None leaves it.
            microbatch: index within the iteration; None counts the series' calls.

        Raises:
            ValueError: the statistics contradict each other or are no numbers, or a name or index
                cannot be right.
            RuntimeError: the reporter is closed.
        """
        self._check_open()
        check_name("series", series)
        checked = checked_partial(partial)
        place = self._place(self._series_counts, series, iteration, microbatch)
        self._put(partial_item(series, *place, checked))

    def scalar(
        self,
        key: str,
        value: SupportsFloat,
        *,
        weight: int = 1,
        rule: str | None = None,
        iteration: int | None = None,
        microbatch: int | None = None,
        global_: bool = False,
    ) -> None:
        """Report a number of the trainer's own.

        Args:
            key: its name, here and when it is read.
            value: any number; NaN and infinities are kept apart and counted. A tensor must hold
                one element, and one on an accelerator is waited for.
            weight: how much it counts in a mean, such as its number of tokens.
            rule: sum, max, min, mean or last; None leaves it to the aggregator's rules file.
            iteration: becomes the current one; None leaves it.
            microbatch: index within the iteration; None counts the key's calls.
            global_: the value is already reduced over ranks and counts once.

        Raises:
            ValueError: the value is no number, or a name, rule, weight or index cannot be right.
            RuntimeError: the reporter is closed.
        """
        self._check_open()
        check_name("key", key)
        told = None if rule is None else str(rule)
        if told is not None and told not in SCALAR_RULES:
            raise ValueError(f"rule must be one of {', '.join(sorted(SCALAR_RULES))}, not {rule!r}")
        number, weighs = to_number(value), to_integer("weight", weight, MAX_COUNT)
        place = self._place(self._key_counts, key, iteration, microbatch)
        self._put(scalar_item(key, *place, number, weighs, told, bool(global_)))

    def end_iteration(self, microbatches: int | None = None) -> None:
        """Commit the current iteration and begin the next.

        Args:
            microbatches: how many it had on this rank; None takes the largest number that any
                series had.

        Raises:
            ValueError: a series had more microbatches than given.
            RuntimeError: the reporter is closed.
        """
        self._check_open()
        given = None if microbatches is None else to_index("microbatches", microbatches)
        # At once: what a signal's handler reports from here on belongs to the next.
        over, self._iteration = self._iteration, self._iteration + 1
        seen = self._series_counts.largest(over)
        number = seen if given is None else given
        if number < seen:
            self._iteration = over
            raise ValueError(f"iteration {over} had {seen} microbatches, not {number}")
        self._series_counts.end(over, number)
        self._put(commit_item(over, number))

    def finish(self) -> None:
        """Mark the attempt finished, once everything before is delivered.

        Raises:
            RuntimeError: the reporter is closed.
        """
        self._check_open()
        self._put(FINISH)

    @abstractmethod
    def _check_open(self) -> None:
        """Refuse to report where nothing is taken any more."""

    def _place(
        self, counts: Counts, name: str, iteration: int | None, microbatch: int | None
    ) -> tuple[int, int]:
        """Return the iteration and the microbatch of a report, counting it."""
        index = None if microbatch is None else to_index("microbatch", microbatch)
        if iteration is not None:
            self._iteration = to_index("iteration", iteration)
        current = self._iteration
        found = counts.count(current, name, index)
        late = found >= counts.ended.get(current, found + 1)
        if late and iteration is None and self._iteration > current:
            # A signal's handler ended the iteration before this was counted in.
            return self._place(counts, name, None, microbatch)
        return current, found
