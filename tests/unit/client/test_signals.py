"""A signal's handler that reports, waits, closes or exits, at each moment at which one can come."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import rankfold_client as rf
from unit.client.fakes import CLEAN, FakeTransport, microbatches
from unit.client.moments import ENTRIES, LOOKS, interrupted

SOON = 20.0
# Every moment of what is short, and every few of what is long or waits for a disk.
STEP = {"report": 1, "end": 1, "flush": 2, "close": 5}
ON_DISK = 3
HANDLERS = {
    "reports": ["report"],
    "reports and ends": ["report", "end"],
    "reports and waits": ["report", "flush"],
    "reports and closes": ["report", "close"],
    "reports and exits": ["report", "exit"],
    "reports and raises": ["report", "stop"],
    "waits for another thread": ["wait_for_others", "wait_for_others"],
}


class Stop(Exception):
    """What a handler ends a step of training with."""


class Trainer:
    """A reporter, and what it was told of each report.

    Attributes:
        handed_over: how many reports returned.
        refused: how many were told that they came too late.
        unknown: how many were ended by a handler.
        left: what each close said.
        longest: seconds that a flush or a close took.
    """

    def __init__(self, spool: Path | None) -> None:
        self.transport = FakeTransport()
        self.reporter = rf.Reporter(
            "r", transport=self.transport, rank=0, world_size=1, spool=spool or ""
        )
        self.handed_over = self.refused = self.unknown = 0
        self.left: list[int] = []
        self.longest = 0.0

    def report(self) -> None:
        """Report something."""
        try:
            self.reporter.partial("s", CLEAN)
        except RuntimeError:
            self.refused += 1
        else:
            self.handed_over += 1

    def end(self) -> None:
        """End the iteration."""
        with contextlib.suppress(RuntimeError):
            self.reporter.end_iteration()

    def flush(self) -> None:
        """Wait until all is delivered."""
        begun = time.monotonic()
        self.reporter.flush(SOON)
        self.longest = max(self.longest, time.monotonic() - begun)

    def close(self) -> None:
        """End."""
        begun = time.monotonic()
        self.left.append(self.reporter.close(SOON))
        self.longest = max(self.longest, time.monotonic() - begun)

    def wait_for_others(self) -> None:
        """Do nothing until another thread has reported and is done with waiting."""
        begun = time.monotonic()
        other = threading.Thread(target=self._report_and_wait, daemon=True)
        other.start()
        other.join(SOON)
        self.longest = max(self.longest, time.monotonic() - begun)

    def _report_and_wait(self) -> None:
        self.report()
        self.flush()

    def exit(self) -> None:
        """End, and the process too."""
        self.close()
        raise SystemExit

    def stop(self) -> None:
        """End what was interrupted; nobody knows of that report then."""
        self.unknown += 1
        raise Stop

    def check(self) -> None:
        """Everything that was handed over is delivered, once, and nobody was told otherwise."""
        delivered = microbatches(self.transport.accepted)
        assert max(Counter(delivered).values(), default=1) == 1
        most = self.handed_over + self.refused + self.unknown
        assert self.handed_over <= len(delivered) <= most
        assert self.reporter.dropped == 0
        assert self.longest < SOON / 2
        # What a close did not have was refused to who reported it.
        assert set(self.left) <= set(range(self.refused + 1))
        for report in self.transport.accepted:
            commits = report.get("commits", {"iteration": [], "microbatches": []})
            for over, number in zip(*commits.values(), strict=True):
                assert all(m < number for iteration, m in delivered if iteration == over)


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("what", STEP)
@pytest.mark.parametrize("does", HANDLERS)
def test_handler_at_any_moment_loses_nothing_and_holds_nobody_up(
    tmp_path: Path, what: str, does: str, on_disk: bool
) -> None:
    """Reports are delivered once or refused, and no close or flush waits for its whole time."""
    moment, going_on = 0, True
    looks = ENTRIES if does == "reports and raises" else LOOKS
    while going_on:
        trainer = Trainer(tmp_path / str(moment) if on_disk else None)
        trainer.reporter.flush(SOON)
        trainer.report()
        steps = [getattr(trainer, step) for step in HANDLERS[does]]

        def handler(steps: list[Callable[[], None]] = steps) -> None:
            for step in steps:
                step()

        with contextlib.suppress(SystemExit, Stop):
            going_on = interrupted(getattr(trainer, what), handler, moment, looks)
        # From another thread, which waits for whatever this one did not give back.
        other = threading.Thread(target=trainer.report, daemon=True)
        other.start()
        other.join(SOON)
        assert not other.is_alive()
        trainer.close()
        trainer.check()
        moment += 1 if looks is ENTRIES else STEP[what] * (ON_DISK if on_disk else 1)
    assert moment > 10
