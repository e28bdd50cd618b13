"""The trainer's handle: what it compares and measures is reported without ever holding it up."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self

from rankfold.answers import GateAnswer
from rankfold.partial import Partial
from rankfold_client.breath import Breath
from rankfold_client.checks import (
    check_choice,
    check_name,
    check_text,
    checked_meta,
    to_bound,
    to_index,
)
from rankfold_client.compiled import prepare, warm_up
from rankfold_client.delivery import Delivery
from rankfold_client.identity import identify
from rankfold_client.items import Item
from rankfold_client.origin import Origin
from rankfold_client.outbox import Outbox
from rankfold_client.pending import Pending
from rankfold_client.reading import Folded, Reader
from rankfold_client.recorder import Recorder
from rankfold_client.seconds import to_seconds
from rankfold_client.shards import Shard
from rankfold_client.spool.opening import open_writer
from rankfold_client.transport import DEFAULT_URL, HttpTransport, Transport

AT_EXIT_SECONDS = 3.0


class Reporter(Recorder):
    """Reports the comparisons and scalars of one rank of one run.

    Reports travel in the background, in order, and are sent again until they are delivered, for
    as long as the process lives; a report counts once however often it is sent. No report waits
    for the network or raises because of it; only arguments that cannot be right raise
    ValueError. In a process forked after the start a reporter does nothing, and says so in the
    log; it cannot be pickled, since each process needs one of its own.

    With a spool, what is handed over is on disk when the call returns, so that a killed process
    loses nothing: the next one of this rank delivers it, or `rankfold spool flush` does. A spool
    that cannot be used is logged, and items wait in memory only. So do a comparison that an
    accelerator still computes and what is reported after it.

    As a context manager it is closed at the end, and an exception leaves the run unfinished.

    Args:
        run: one training job, unique within its project.
        project: what the run belongs to; RANKFOLD_PROJECT, else "default".
        url: of the aggregator; RANKFOLD_URL, else http://127.0.0.1:9814.
        token: for an aggregator that asks for one; RANKFOLD_TOKEN, else none.
        rank: index of the data shard, as `shard` or the launcher (torchrun, Ray Train, MPI, SLURM)
            say where it is not given; copies of a shard, such as tensor-parallel ones, share it.
        world_size: number of data shards, likewise.
        shard: what this process holds, from a mesh or from sizes: see `Shard`.
        reports: False makes this a copy that leaves reporting to another: it checks and counts
            and sends nothing. `shard.reports` is True on one copy of each shard.
        attempt: which launch of the run this is, as the launcher says. A job that is started
            again by hand under the same run must pass the next one here or in RANKFOLD_ATTEMPT.
        iteration: the first one; with another attempt, the one that its checkpoint goes on with.
        meta: up to 64 short strings that describe the attempt, not the rank: of each name the value
            that arrives first, from any rank, stays for all of them.
        max_queue: how many items may wait in memory. Without a spool the newest is dropped
            beyond that and counted, and the run's gate says incomplete.
        max_queue_bytes: roughly how much memory they may take.
        spool: a directory on a local disk; RANKFOLD_SPOOL_DIR, else none, as "" says too.
        spool_bytes: how much of the disk this rank may take; beyond, the newest is dropped and
            counted; RANKFOLD_SPOOL_BYTES, else 256 MiB.
        timeout: seconds for connecting to the aggregator and for each wait for its answer; above 0.
        transport: stands in for HTTP.

    Raises:
        ValueError: a name, the address, the identity, a bound or the timeout cannot be right, or
            launchers contradict each other.
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
        shard: Shard | None = None,
        reports: bool = True,
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
        check_text("url", url)
        check_text("token", token)
        most = to_bound("max_queue", max_queue)
        most_bytes = to_bound("max_queue_bytes", max_queue_bytes)
        who = identify(os.environ, rank=rank, world_size=world_size, attempt=attempt, shard=shard)
        header: dict[str, Any] = {"project": project, "run": run}
        header |= {"attempt": who.attempt, "rank": who.rank}
        if who.world_size is not None:
            header["world_size"] = who.world_size
        if transport is None:
            address = url or os.environ.get("RANKFOLD_URL") or DEFAULT_URL
            token = token or os.environ.get("RANKFOLD_TOKEN")
            transport = HttpTransport(address, token, timeout, pause=Breath())
        super().__init__(self._hand_over, self._hand_over_later, iteration)
        own = Origin(header, checked_meta(meta))
        self._name = f"rank {who.rank} of run {run}"
        self._rank, self._closed = who.rank, False
        self._reader = Reader(transport, project, run)
        self._delivery: Delivery | None = None
        if reports:
            writer = open_writer(os.environ, spool, spool_bytes, own)
            outbox = Outbox(most, most_bytes, time.monotonic, own, writer)
            self._delivery = Delivery(self._name, outbox, transport, writer, most)
            self._delivery.start()
            atexit.register(self._at_exit)
        prepare()

    @property
    def dropped(self) -> int:
        """How many items had to be given up so far."""
        return self._delivery.dropped if self._delivery else 0

    def warm_up(self, timeout: float = 60.0) -> bool:
        """Wait for the compiled form of the comparison, which is built in the background.

        Without it the first comparisons may be of the slower form. See `rankfold_client.warm_up`.

        Returns:
            Whether it is in use; False where there is no compiler, or not in time.

        Raises:
            ValueError: the timeout is NaN or negative.
        """
        return warm_up(timeout)

    def flush(self, timeout: float = 10.0) -> int:
        """Send what waits at once, and wait until it is delivered, for at most `timeout` seconds.

        What other threads report meanwhile is not waited for.

        Returns:
            How many items are not delivered: 0 is all that were reported before.

        Raises:
            ValueError: the timeout is NaN or negative.
        """
        seconds = to_seconds("timeout", timeout)
        return self._delivery.flush(seconds) if self._delivery else 0

    def folded(
        self, iteration: int, timeout: float = 30.0, *, keys: Sequence[str] | None = None
    ) -> Folded:
        """Return what an iteration folded to over all ranks, once it is complete.

        It waits for the other ranks' reports, which may take a second or two longer than they
        do; so it is for a rank that needs the numbers, such as to log or to stop on them.

        Args:
            iteration: one that this rank has ended.
            timeout: seconds to wait at most; infinity is as long as it takes.
            keys: only these, at least one; None is all.

        Raises:
            ValueError: this rank has not ended the iteration, so that it would wait for itself;
                the timeout is NaN or negative; or no key is chosen.
            TimeoutError: it was not complete in time, which says which ranks and microbatches are
                missing; or nothing answered.
            RankfoldError: the aggregator refuses; reading needs a token with the scope read.
        """
        check_choice("keys", keys)
        deadline = self._before_reading(iteration, timeout)
        return self._reader.folded(iteration, deadline, keys)

    def wait_gate(
        self,
        iteration: int,
        timeout: float = 30.0,
        *,
        series: Sequence[str] | None = None,
        first: int | None = None,
        max_mismatch_count: int | None = None,
        max_diff_max: float | None = None,
        max_diff_mean: float | None = None,
        allow_absent: bool = False,
    ) -> GateAnswer:
        """Return the verdict on all iterations up to one, as soon as nothing can change it.

        Where that is not so in time, the verdict of that moment, such as `incomplete` with the
        ranks that are missing. A mismatch is told at once, whatever is still missing.

        Args:
            iteration: one that this rank has ended.
            timeout: seconds to wait at most; infinity is as long as it takes.
            series: only these, at least one; None is all.
            first: the first iteration that is judged; None is the run's.
            max_mismatch_count: fail where a series has more mismatches; None is 0.
            max_diff_max: fail where a series has a larger difference.
            max_diff_mean: fail where a series has a larger mean difference.
            allow_absent: an iteration that no rank reported a series for is no gap.

        Raises:
            ValueError: this rank has not ended the iteration, so that it would wait for itself;
                the timeout is NaN or negative; or no series is chosen.
            TimeoutError: nothing answered in time, or it does not know the iteration yet.
            RankfoldError: the aggregator refuses; reading needs a token with the scope read.
        """
        check_choice("series", series)
        deadline = self._before_reading(iteration, timeout)
        policy = {
            "series": series,
            "from": first,
            "max_mismatch_count": max_mismatch_count,
            "max_diff_max": max_diff_max,
            "max_diff_mean": max_diff_mean,
            "allow_absent": "true" if allow_absent else None,
        }
        return self._reader.gate(iteration, deadline, policy)

    def close(self, timeout: float = 10.0, finish: bool | None = None) -> int:
        """Deliver what is left, for at most `timeout` seconds, and end; then it does nothing.

        A signal's handler that closes in the middle of a close, or another thread, delivers too.

        Args:
            timeout: seconds.
            finish: whether to mark the attempt finished once all is delivered; None means that
                rank 0 does.

        Returns:
            How many items could not be delivered: 0 is all of them. With a spool they are kept,
            and what dead processes of this rank left counts too.

        Raises:
            ValueError: the timeout is NaN or negative; nothing is closed then.
        """
        seconds = to_seconds("timeout", timeout)
        self._closed = True
        if self._delivery is None:
            return 0
        left = self._delivery.close(seconds, finish=self._rank == 0 if finish is None else finish)
        # Not before: a signal's handler may end the close, and the process, by an exception.
        atexit.unregister(self._at_exit)
        return left

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(finish=None if kind is None else False)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Reporter belongs to the process that made it and cannot be pickled: make one in "
            "each process, or leave it out of what data-loader workers are given"
        )

    def _hand_over(self, item: Item) -> None:
        if self._delivery is not None:
            self._delivery.put(item)

    def _hand_over_later(self, pending: Pending, make: Callable[[Partial], Item]) -> None:
        if self._delivery is not None:
            self._delivery.put_pending(pending, make)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"the reporter of {self._name} is closed")

    def _before_reading(self, iteration: int, timeout: float) -> float:
        """Deliver what the question is about, and return until when to wait for an answer."""
        seconds = to_seconds("timeout", timeout)
        deadline = time.monotonic() + seconds
        if to_index("iteration", iteration) >= self._iteration:
            raise ValueError(
                f"iteration {iteration} is not over on this rank: call end_iteration() before"
            )
        self.flush(seconds)
        return deadline

    def _at_exit(self) -> None:
        self.close(timeout=AT_EXIT_SECONDS, finish=False)
