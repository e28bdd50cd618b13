"""Everything between a reporter's entries and the aggregator: queue, spool, threads, and an end."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from rankfold.partial import Partial
from rankfold_client.breath import Breath
from rankfold_client.in_order import InOrder
from rankfold_client.items import FINISH, OPEN, Item
from rankfold_client.outbox import Outbox
from rankfold_client.pending import Pending
from rankfold_client.sender import BATCH, Sender
from rankfold_client.spool.keeper import Keeper
from rankfold_client.spool.writer import Writer
from rankfold_client.transport import Sends

log = logging.getLogger("rankfold")


class Delivery:
    """What one process hands over, on its way. In a process forked from it, it does nothing.

    Args:
        name: how lines in the log begin.
        outbox: what waits.
        transport: where to.
        writer: where it is kept on disk; None keeps it in memory only.
        most: how many items may wait for an accelerator.
    """

    def __init__(
        self,
        name: str,
        outbox: Outbox,
        transport: Sends,
        writer: Writer | None = None,
        most: int = 10_000,
    ) -> None:
        self._name, self._outbox = name, outbox
        self._in_order = InOrder(outbox.put, outbox.give_up, most, Breath())
        self._sender = Sender(
            outbox, transport, name, patient=writer is not None, source=self._in_order
        )
        self._keeper = None
        if writer is not None:
            self._keeper = Keeper(writer.folder, outbox, writer, fed=self._sender.nudge)
        self._process, self._warned = os.getpid(), False
        self._ended, self._undelivered = False, 0

    @property
    def dropped(self) -> int:
        """How many items had to be given up so far."""
        return self._outbox.dropped

    def start(self) -> None:
        """Say that the rank is there, and begin to send."""
        self.put(OPEN)
        if self._keeper is not None:
            self._keeper.start()
        self._sender.start()

    def put(self, item: Item) -> None:
        """Hand an item over; it never waits for the network.

        Raises:
            RuntimeError: it came too late for a close that a signal's handler or another thread
                called meanwhile.
        """
        # A lock that another thread held when the process was forked is never given back.
        if self._forked():
            self._warn()
        else:
            self._hand_over(item)
            self._check_in_time()

    def put_pending(self, pending: Pending, make: Callable[[Partial], Item]) -> None:
        """Hand an item over that an accelerator has still to compute; nothing waits for it.

        Raises:
            RuntimeError: as for `put`.
        """
        if self._forked():
            self._warn()
            return
        if self._in_order.put_pending(pending, make) == 1:
            self._sender.nudge()
        self._check_in_time()

    def flush(self, timeout: float) -> int:
        """Send at once, and wait for at most so many seconds until what is there is delivered.

        Returns:
            How many items are not: those that were given up, and where it took longer what waits.
        """
        if self._ended or self._forked():
            return self._undelivered
        return self._sender.flush(timeout) + self._outbox.dropped

    def close(self, timeout: float, *, finish: bool) -> int:
        """Deliver what is left, for at most so many seconds, and end; then it does nothing.

        A signal's handler that closes in the middle of a close does it all; so does another thread.

        Args:
            timeout: seconds.
            finish: whether the attempt is over, if all is delivered.

        Returns:
            How many items are not delivered.
        """
        if self._ended or self._forked():
            return self._undelivered
        deadline = time.monotonic() + timeout
        self._sender.flush(timeout, last=True)
        if finish and self._nothing_is_lost():
            self._hand_over(FINISH)
            self._sender.flush(max(0.0, deadline - time.monotonic()), last=True)
        if not self._ended:
            self._ended = True
            self._end(deadline)
        return self._undelivered

    def _end(self, deadline: float) -> None:
        self._undelivered = self._left()
        self._sender.stop(max(0.0, deadline - time.monotonic()))
        remaining = max(0.0, deadline - time.monotonic())
        where = "" if self._keeper is None else self._keeper.leave(remaining)
        if self._undelivered:
            items = "1 item" if self._undelivered == 1 else f"{self._undelivered} items"
            log.warning("%s: closed with %s undelivered%s", self._name, items, where)

    def _hand_over(self, item: Item) -> None:
        if self._in_order.put(item) in (1, BATCH):
            self._sender.nudge()

    def _check_in_time(self) -> None:
        """Tell whoever reports what nobody sends any more; a handler came at any moment of it."""
        if self._ended and self._left() > self._undelivered:
            self._undelivered = self._left()
            raise RuntimeError(
                f"the reporter of {self._name} was closed in the middle of this report, "
                "which is not delivered"
            )

    def _forked(self) -> bool:
        return os.getpid() != self._process

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "%s: process %d was forked from the one that reports (%d), and what it reports is "
                "left out: report from there, or make a Reporter in the child",
                *(self._name, os.getpid(), self._process),
            )

    def _nothing_is_lost(self) -> bool:
        """Say whether a finish may follow: all is delivered, or kept to be delivered before it."""
        if self._keeper is None:
            return self._left() == 0
        return not (self._outbox.dropped or self._outbox.in_memory_only or self._in_order)

    def _left(self) -> int:
        return self._sender.left() + self._outbox.dropped
