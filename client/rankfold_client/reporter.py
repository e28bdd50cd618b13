"""The trainer's handle: what it compares and measures is reported without ever holding it up."""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, SupportsFloat

from torch import Tensor

from rankfold.partial import MAX_COUNT, Partial
from rankfold.rules import SCALAR_RULES
from rankfold_client.checks import (
    check_name,
    checked_meta,
    checked_partial,
    to_index,
    to_integer,
    to_number,
)
from rankfold_client.compare import compare as compare_tensors
from rankfold_client.counts import Counts
from rankfold_client.identity import identify
from rankfold_client.origin import Origin
from rankfold_client.outbox import Outbox
from rankfold_client.report import CommitItem, FinishItem, Item, OpenItem, PartialItem, ScalarItem
from rankfold_client.sender import BATCH, Sender
from rankfold_client.spool.keeper import Keeper
from rankfold_client.spool.opening import open_writer
from rankfold_client.transport import DEFAULT_URL, HttpTransport, Transport

AT_EXIT_SECONDS = 3.0

log = logging.getLogger("rankfold")


class Reporter:
    """Reports the comparisons and scalars of one rank of one run.

    Reports travel in the background, in order, and are sent again until they are delivered, for
    as long as the process lives; a report counts once however often it is sent. No call waits
    for the network or raises because of it; only arguments that cannot be right raise
    ValueError. In a process forked after the start a reporter does nothing.

    With a spool, what is handed over is on disk when the call returns, so that a killed process
    loses nothing: the next one of this rank delivers it, or `rankfold spool flush` does. A spool
    that cannot be used is logged, and items wait in memory only.

    As a context manager it is closed at the end, and an exception leaves the run unfinished.

    Args:
        run: one training job, unique within its project.
        project: what the run belongs to; RANKFOLD_PROJECT, else "default".
        url: of the aggregator; RANKFOLD_URL, else http://127.0.0.1:9814.
        token: for an aggregator that asks for one; RANKFOLD_TOKEN, else none.
        rank: index of the data shard, as torchrun or SLURM say where it is not given; copies of
            a shard, such as tensor-parallel ones, share its rank.
        world_size: number of data shards, likewise.
        attempt: which launch of the run this is, likewise. A job that is started again by hand
            under the same run must pass the next one here or in RANKFOLD_ATTEMPT.
        iteration: the first one; with another attempt, the one that its checkpoint goes on with.
        meta: up to 64 short strings that describe the attempt.
        max_queue: how many items may wait in memory. Without a spool the newest is dropped
            beyond that and counted, and the run's gate says incomplete.
        max_queue_bytes: roughly how much memory they may take.
        spool: a directory on a local disk; RANKFOLD_SPOOL_DIR, else none, as "" says too.
        spool_bytes: how much of the disk this rank may take; beyond, the newest is dropped and
            counted; RANKFOLD_SPOOL_BYTES, else 256 MiB.
        timeout: seconds for connecting to the aggregator and for each wait for its answer.
        transport: stands in for HTTP.

    Raises:
        ValueError: a name, the address, the identity or a bound cannot be right.
    """

    def __init__(
        self,
        run: str,
        *,
        project: str | None = None,
        url: str | None = None,
        token: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        attempt: int | None = None,
        iteration: int = 0,
        meta: Mapping[str, str] | None = None,
        max_queue: int = 100_000,
        max_queue_bytes: int = 64 << 20,
        spool: str | os.PathLike[str] | None = None,
        spool_bytes: int | None = None,
        timeout: float = 10.0,
        transport: Transport | None = None,
    ) -> None:
        check_name("run", run, in_path=True)
        if project is None:
            project = os.environ.get("RANKFOLD_PROJECT") or "default"
        check_name("project", project, in_path=True)
        who = identify(os.environ, rank=rank, world_size=world_size, attempt=attempt)
        header: dict[str, Any] = {"project": project, "run": run}
        header |= {"attempt": who.attempt, "rank": who.rank}
        if who.world_size is not None:
            header["world_size"] = who.world_size
        if transport is None:
            address = url or os.environ.get("RANKFOLD_URL") or DEFAULT_URL
            transport = HttpTransport(address, token or os.environ.get("RANKFOLD_TOKEN"), timeout)
        own = Origin(header, checked_meta(meta))
        writer = open_writer(os.environ, spool, spool_bytes, own)
        self._name = f"rank {who.rank} of run {run}"
        self._outbox = Outbox(max_queue, max_queue_bytes, time.monotonic, own, writer)
        self._sender = Sender(self._outbox, transport, self._name, patient=writer is not None)
        self._keeper = None
        if writer is not None:
            self._keeper = Keeper(writer.folder, self._outbox, writer, fed=self._sender.nudge)
        self._rank, self._process = who.rank, os.getpid()
        self._iteration = to_index("iteration", iteration)
        self._series_counts = Counts()
        self._key_counts = Counts()
        self._closed = False
        self._undelivered = 0
        self._put(OpenItem())
        if self._keeper is not None:
            self._keeper.start()
        self._sender.start()
        atexit.register(self._at_exit)

    @property
    def iteration(self) -> int:
        """The iteration that the next report belongs to."""
        return self._iteration

    @property
    def dropped(self) -> int:
        """How many items had to be given up so far."""
        return self._outbox.dropped

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
            RuntimeError: the reporter is closed.
        """
        self._check_open()
        found = compare_tensors(a, b, mask, token_ids=token_ids, sample_ids=sample_ids)
        self.partial(series, found, iteration=iteration, microbatch=microbatch)

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
        self._put(PartialItem(series, *place, checked))

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
        if rule is not None and rule not in SCALAR_RULES:
            raise ValueError(f"rule must be one of {', '.join(sorted(SCALAR_RULES))}, not {rule!r}")
        number, weighs = to_number(value), to_integer("weight", weight, MAX_COUNT)
        told = None if rule is None else str(rule)
        place = self._place(self._key_counts, key, iteration, microbatch)
        self._put(ScalarItem(key, *place, number, weighs, told, bool(global_)))

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
        seen = self._series_counts.largest(self._iteration)
        number = seen if microbatches is None else to_index("microbatches", microbatches)
        if number < seen:
            raise ValueError(f"iteration {self._iteration} had {seen} microbatches, not {number}")
        self._put(CommitItem(self._iteration, number))
        self._iteration += 1

    def finish(self) -> None:
        """Mark the attempt finished, once everything before is delivered.

        Raises:
            RuntimeError: the reporter is closed.
        """
        self._check_open()
        self._put(FinishItem())

    def flush(self, timeout: float = 10.0) -> int:
        """Wait until everything is delivered, for at most `timeout` seconds.

        Returns:
            How many items are not delivered: 0 is all of them.
        """
        if self._closed or self._forked():
            return self._undelivered
        self._sender.flush(timeout)
        return self._left()

    def close(self, timeout: float = 10.0, finish: bool | None = None) -> int:
        """Deliver what is left, for at most `timeout` seconds, and end. Again it does nothing.

        Args:
            timeout: seconds.
            finish: whether to mark the attempt finished once all is delivered; None means that
                rank 0 does.

        Returns:
            How many items could not be delivered: 0 is all of them. With a spool they are kept,
            and what dead processes of this rank left counts too.
        """
        if self._closed or self._forked():
            return self._undelivered
        self._closed = True
        atexit.unregister(self._at_exit)
        deadline = time.monotonic() + timeout
        self._sender.flush(timeout)
        if (self._rank == 0 if finish is None else finish) and self._nothing_is_lost():
            self._put(FinishItem())
            self._sender.flush(max(0.0, deadline - time.monotonic()))
        self._undelivered = self._left()
        self._sender.stop(max(0.0, deadline - time.monotonic()))
        remaining = max(0.0, deadline - time.monotonic())
        where = "" if self._keeper is None else self._keeper.leave(remaining)
        if self._undelivered:
            items = "1 item" if self._undelivered == 1 else f"{self._undelivered} items"
            log.warning("%s: closed with %s undelivered%s", self._name, items, where)
        return self._undelivered

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(finish=None if kind is None else False)

    def _put(self, item: Item) -> None:
        # A lock that another thread held when the process was forked is never given back.
        if self._forked():
            return
        if self._outbox.put(item) in (1, BATCH):
            self._sender.nudge()

    def _place(
        self, counts: Counts, name: str, iteration: int | None, microbatch: int | None
    ) -> tuple[int, int]:
        """Return the iteration and the microbatch of a report, counting it."""
        index = None if microbatch is None else to_index("microbatch", microbatch)
        if iteration is not None:
            self._iteration = to_index("iteration", iteration)
        return self._iteration, counts.count(self._iteration, name, index)

    def _nothing_is_lost(self) -> bool:
        """Say whether a finish may follow: all is delivered, or kept to be delivered before it."""
        if self._keeper is None:
            return self._left() == 0
        return self._outbox.dropped == 0 and self._outbox.in_memory_only == 0

    def _left(self) -> int:
        return len(self._outbox) + self._outbox.dropped

    def _forked(self) -> bool:
        return os.getpid() != self._process

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"the reporter of {self._name} is closed")

    def _at_exit(self) -> None:
        self.close(timeout=AT_EXIT_SECONDS, finish=False)
