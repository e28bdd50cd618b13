"""Brings the outbox to the aggregator: one daemon thread, in order, again until it is there."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Literal, Protocol

from rankfold.errors import FieldError, Inconsistent, NotFound, RankfoldError, TooLarge
from rankfold.wire import Receipt
from rankfold_client.breath import Breath
from rankfold_client.complaints import FAILED, Complaints
from rankfold_client.items import FINISH, OPEN, named, pack, unpack
from rankfold_client.outbox import Outbox
from rankfold_client.report import Body, encode
from rankfold_client.transport import Sends

BATCH = 1000
# How many items are taken out of the queue in one go.
PIECE = 200
# How soon to look again for what an accelerator has still to say: in a flush, and otherwise.
POLL, IDLE_POLL = 0.01, 0.1
LINGER = 1.0
FIRST_BACKOFF = 0.5
MOST_BACKOFF = 30.0
# What an encoder raises; the same items would be no better the next time.
UNENCODABLE = (TypeError, ValueError, AttributeError, RecursionError)

_OPEN, _FINISH = pack(OPEN), pack(FINISH)
_NOTHING = Body(b"", 0)

log = logging.getLogger("rankfold")


class Source(Protocol):
    """What comes to the outbox later, and in order."""

    def __len__(self) -> int:
        """Return how many items have still to come."""
        ...

    def advance(self) -> None:
        """Put those that have come; never waits."""
        ...

    def passing(self) -> Iterator[Literal[False]]:
        """Look, at each step, whether those of the first look have come; end when they have."""
        ...


class Sender:
    """Takes batches out of the outbox and delivers each, whatever the network does.

    `step` is all of the behaviour and never waits; the thread only repeats it.

    Args:
        outbox: what is to be sent.
        transport: where to.
        who: how lines in the log begin.
        clock: seconds that only grow.
        jitter: a number from 0 to 1 for each wait.
        patient: whether items are kept on disk, where they wait for a better address or token:
            only for what it says is a report given up.
        pause: is called between pieces of work, so that training comes to its turn.
        source: where more items come from.
    """

    def __init__(
        self,
        outbox: Outbox,
        transport: Sends,
        who: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        patient: bool = False,
        pause: Callable[[], None] | None = None,
        source: Source | None = None,
    ) -> None:
        self._outbox, self._transport = outbox, transport
        self._clock, self._jitter, self._patient = clock, jitter, patient
        self._pause = pause or Breath()
        # One that is empty is false.
        self._source: Source | tuple[()] = () if source is None else source
        self._origin, self._batch = outbox.own, list[bytes]()
        self._telling = 0
        self._body: Body | None = None
        self._most = BATCH
        self._failures = 0
        self._server_says = self._next_try = clock()
        self._complained: Counter[str] = Counter()
        self._complaints = Complaints(who, clock)
        self._hurry, self._hurrying = 0, threading.RLock()
        self._stopping = self._stopped = False
        # Not an event, whose lock a signal's handler would wait for that came while it was set.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="rankfold-sender", daemon=True)

    def start(self) -> None:
        """Begin to send from a thread that dies with the process."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread after the request that it may be waiting for."""
        self._stopping = True
        self.nudge()
        # Not joined: a signal's handler may have the outbox's lock, which this wait gives back.
        self._outbox.changes.wait_for(lambda: self._stopped or not self._thread.is_alive(), timeout)

    def nudge(self) -> None:
        """Say that there may be something to send."""
        if self._wake.empty():
            self._wake.put(None)

    def flush(self, timeout: float, *, last: bool = False) -> int:
        """Send what is there without lingering; return how many items are left, 0 if it is sent.

        A wait for the next try is cut short, one that the server asked for is not.

        Args:
            timeout: seconds to wait at most.
            last: nothing is put any more but what is on its way, which is waited for too.
        """
        there = self._passing()
        # Others may wait at the same time, and a signal may end the wait with an exception.
        with self._hurrying:
            self._hurry += 1
        try:
            self._next_try = self._clock()
            self.nudge()
            sent = self._outbox.changes.wait_for(
                lambda: self._stopped or (self._quiet() if last else next(there, True)), timeout
            )
        finally:
            with self._hurrying:
                self._hurry -= 1
        return 0 if sent and not self._stopped else self.left()

    def left(self) -> int:
        """Return how many items wait."""
        return len(self._outbox) + len(self._source)

    def step(self) -> float | None:
        """Send one batch if it is time to; return in how many seconds to come back.

        None means when there is something new. A batch that failed is sent again unchanged.
        """
        if not self._source:
            return self._send_some()
        self._source.advance()
        delay, soon = self._send_some(), POLL if self._hurry else IDLE_POLL
        return min(soon, soon if delay is None else delay) if self._source else delay

    def _send_some(self) -> float | None:
        early = max(self._server_says, self._next_try) - self._clock()
        if early > 0:
            return early
        if self._body is None:
            lingering = self._linger()
            if lingering != 0:
                return lingering
            try:
                self._take()
            except UNENCODABLE as error:
                self._refused(Inconsistent([FieldError("", f"cannot be encoded: {error!r}")]))
                return 0.0
        if self._is_finish() and self._origin.dropped:
            self._refused(Inconsistent([FieldError("", "not everything was delivered")]))
            return 0.0
        try:
            receipt = self._send()
        except RankfoldError as error:
            if self._is_final(error):
                self._refused(error)
                return 0.0
            return self._put_off(error)
        self._accepted(receipt)
        return 0.0

    def _passing(self) -> Iterator[Literal[False]]:
        if self._source:
            yield from self._source.passing()
        yield from self._outbox.passing()

    def _quiet(self) -> bool:
        return not self.left() and self._body is None and not self._outbox.untold()

    def _linger(self) -> float | None:
        """Return how long to wait for a fuller batch; 0 to send now, None where nothing waits."""
        ready = self._outbox.ready
        if not ready:
            return 0.0 if self._outbox.untold() else None
        if self._hurry or ready >= BATCH:
            return 0.0
        return max(0.0, LINGER - self._outbox.age())

    def _take(self) -> None:
        """Make the next report; it stays the same until it is accepted or refused."""
        origin, self._batch = self._outbox.peek(self._most)
        self._origin = origin
        # A finish has no room for a number.
        self._telling = origin.told if self._is_finish() else origin.dropped
        header = origin.header | ({"dropped": origin.dropped} if origin.dropped else {})
        if not self._batch:
            # A world size may be why everything was refused; what was lost is told without it.
            header.pop("world_size", None)
        if origin.meta and _OPEN in self._batch:
            header["meta"] = origin.meta
        self._pause()
        self._body = encode(header, self._batch, self._pause)

    def _is_finish(self) -> bool:
        return self._batch[:1] == [_FINISH]

    def _send(self) -> Receipt:
        if self._is_finish():
            names = self._origin.header
            self._transport.finish(names["project"], names["run"], names["attempt"])
            return Receipt()
        return self._transport.report(*(self._body or _NOTHING))

    def _is_final(self, error: RankfoldError) -> bool:
        """Say whether sending the same again cannot mend it."""
        if error.retryable or not self._patient:
            return not error.retryable
        gone = self._is_finish() and isinstance(error, NotFound)
        return gone or isinstance(error, Inconsistent | TooLarge)

    def _accepted(self, receipt: Receipt) -> None:
        self._failures = 0
        self._most = min(BATCH, self._most * 2)
        if receipt.conflicts:
            self._complaints.note("in conflict", receipt.conflicts, "the first report stands")
        self._origin.told, self._body = self._telling, None
        self._settle(delivered=True)

    def _refused(self, error: RankfoldError) -> None:
        """Give up what was refused; of many, go on with half of them to find what is wrong."""
        self._failures = 0
        number = len(self._batch)
        if number > 1 and isinstance(error, Inconsistent | TooLarge):
            self._body, self._most = None, number // 2
            return
        why = f"{named(unpack(self._batch[0]))}: {error}" if number == 1 else str(error)
        if number:  # else it was only the number of those before
            self._complaints.note("given up", number, why)
        # A number that is refused is not told for ever.
        self._origin.told, self._body = self._telling, None
        self._settle(delivered=False)

    def _settle(self, *, delivered: bool) -> None:
        left = len(self._batch)
        while left:
            number = min(left, PIECE)
            self._outbox.settle(number, delivered=delivered)
            left -= number
            self._pause()

    def _put_off(self, error: Exception) -> float:
        """Return when to send the same again: after backoff with full jitter, as is fair.

        See M. Brooker, Exponential Backoff And Jitter, 2015. What the server asks comes on top.
        """
        asked = float(getattr(error, "retry_after", 0.0))
        most = FIRST_BACKOFF if self._hurry else MOST_BACKOFF
        backoff = self._jitter() * min(most, FIRST_BACKOFF * 2.0 ** min(self._failures, 16))
        self._failures += 1
        self._server_says = self._clock() + asked
        self._next_try = self._server_says + backoff
        self._complaints.note(FAILED, 1, str(error))
        return asked + backoff

    def _run(self) -> None:
        while not self._stopping:
            try:
                delay = self.step()
            except Exception as error:  # the thread must outlive what nobody thought of
                log.exception("a report could not be sent")
                delay = self._put_off(error)
            self.complain()
            self._outbox.changes.notify()
            if delay != 0:
                with contextlib.suppress(Empty):
                    self._wake.get(timeout=delay)
        try:
            self.complain(last=True)
            self._transport.close()
        finally:
            self._stopped = True
            self._outbox.changes.notify()

    def complain(self, *, last: bool = False) -> None:
        """Log what went wrong, unless that was done less than a minute ago; see `Complaints`."""
        unkept, trouble = self._outbox.unkept
        for what, number, why in (
            ("dropped", self._outbox.overflow, self._outbox.why_full),
            ("kept in memory only", unkept, trouble),
        ):
            if number > self._complained[what]:
                self._complaints.note(what, number - self._complained[what], why)
                self._complained[what] = number
        self._complaints.speak(self.left(), last=last)
