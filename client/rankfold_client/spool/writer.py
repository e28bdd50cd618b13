"""Keeps what a trainer hands over, on the trainer's own thread, without ever holding it up.

An append is one `pwrite` into the page cache, which a killed process cannot take back. Anything
that waits for a disk is the keeper's. Where an append fails or takes long, or the keeper has
been waiting for the disk, items wait in memory only until the keeper finds the disk well.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from rankfold_client.items import Item
from rankfold_client.origin import Origin
from rankfold_client.spool.names import rank_key
from rankfold_client.spool.records import to_record
from rankfold_client.spool.segment import Segment
from rankfold_client.turn import Turn

SEGMENT_BYTES = 4 << 20
# An append takes microseconds, or more on a busy machine; one of this length says that the disk
# does not answer, and that the next may take longer.
SLOW = 1.0
# How long the keeper may wait for the disk before appends stay away from it.
STUCK = 2.0


class Writer:
    """The segments that this process writes.

    Args:
        folder: the spool.
        origin: whose the items are.
        limit: how many bytes all segments of the rank may take.
        clock: seconds that only grow.

    Attributes:
        folder: as given.
        origin: as given.
        key: how the names of the rank's segments begin.
        segments: those with something that is not done with, oldest first.
        elsewhere: bytes in segments of the rank but the newest.
        unkept: how many items could not be kept.
        trouble: why, the last time.
        busy_since: when the keeper began to wait for the disk; None where it does not.
        turn: held while an item is appended and takes its place in the outbox.
    """

    def __init__(
        self,
        folder: Path,
        origin: Origin,
        limit: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.origin, self.key = folder, origin, rank_key(origin.header)
        self.segments: list[Segment] = []
        self.elsewhere = self.unkept = 0
        self.trouble = ""
        self.busy_since: float | None = None
        self.turn = Turn()
        self._limit, self._clock = limit, clock
        self._segment_bytes = min(SEGMENT_BYTES, limit // 8)
        self._current: Segment | None = None
        self._well = True

    @property
    def current(self) -> Segment | None:
        """The segment that is appended to."""
        return self._current

    @property
    def full(self) -> bool:
        """Whether the rank's segments have reached their bound."""
        current = self._current
        return self.elsewhere + (current.end if current else 0) >= self._limit

    def append(self, item: Item) -> Segment | None:
        """Keep an item; return where, or None where the disk is not well."""
        segment = self._current
        if segment is None or not self._well or self._is_stuck():
            self.skip(self.trouble)
            return None
        begun = self._clock()
        try:
            segment.append(to_record(item))
        except (OSError, TypeError, ValueError) as error:
            self.fail(error)
            self.skip(self.trouble)
            return None
        took = self._clock() - begun
        if took > SLOW:
            self.fail(TimeoutError(f"one write took {took:.1f} seconds"))
        return segment

    def skip(self, why: str) -> None:
        """Count an item that is not kept."""
        self.unkept += 1
        self.trouble = why

    def note_dropped(self) -> None:
        """Write down that an item was given up, so that it is told even after a kill."""
        if self._current is None or not self._well or self._is_stuck():
            return
        try:
            self._current.mark()
        except OSError as error:
            self.fail(error)

    def rotate(self) -> None:
        """Begin a segment where there is none or the newest is long enough.

        Raises:
            OSError: the disk does not let us, or an append is under way and does not end.
        """
        if self._current is None or self._current.end >= self._segment_bytes:
            self.folder.mkdir(parents=True, exist_ok=True)
            begun = Segment.create(self.folder, self.key, self.origin)
            try:
                # Whatever was appended to the one before has its place in the outbox then.
                with self.turn.between():
                    self.segments.append(begun)
                    self._current = begun
            except TimeoutError:
                begun.delete()
                raise

    def shut(self) -> bool:
        """Append nothing any more; False where an append is under way and does not end."""
        # A handler that closes in the middle of an append waits for us, and the append for it.
        with contextlib.suppress(TimeoutError), self.turn.between():
            self._current = None
            return True
        return False

    def fail(self, error: Exception) -> None:
        """Stay away from the disk until it is found well."""
        self._well, self.trouble = False, f"{type(error).__name__}: {error}"

    def judge(self, fault: OSError | None) -> None:
        """Take the keeper's word on how the disk is, now that it has answered."""
        self.busy_since = None
        if fault is not None:
            self.fail(fault)
        else:
            self._well = True

    def _is_stuck(self) -> bool:
        since = self.busy_since
        if since is None or self._clock() - since < STUCK:
            return False
        self.trouble = f"the disk has not answered for {self._clock() - since:.0f} seconds"
        return True
