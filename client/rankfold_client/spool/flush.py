"""Delivers what a spool holds of all dead processes, while no trainer runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rankfold.errors import Inconsistent, NotFound, RankfoldError, TooLarge
from rankfold.wire import Receipt
from rankfold_client.outbox import Outbox
from rankfold_client.sender import Sender
from rankfold_client.spool.keeper import Keeper
from rankfold_client.transport import Sends

DONE, FAILED, USAGE, UNREACHABLE = 0, 1, 2, 4
MAX_ITEMS, MAX_BYTES = 20_000, 64 << 20
PROGRESS_EVERY = 1.0
STOPPING = 2.0

Say = Callable[[str], None]


class Watched:
    """Sends, and remembers how its requests went.

    Args:
        inner: what sends.
        clock: seconds that only grow.

    Attributes:
        failure: why the last request failed; None where it did not.
        since: when something last got through.
    """

    def __init__(self, inner: Sends, clock: Callable[[], float]) -> None:
        self._inner, self._clock = inner, clock
        self.failure: RankfoldError | None = None
        self.since = clock()

    def report(self, body: bytes, number: int) -> Receipt:
        """Send a report of so many partials and scalars; return what became of each."""
        with self._watching():
            return self._inner.report(body, number)

    def finish(self, project: str, run: str, attempt: int) -> None:
        """Mark an attempt finished."""
        with self._watching():
            self._inner.finish(project, run, attempt)

    def close(self) -> None:
        """Let go of connections."""
        self._inner.close()

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        try:
            yield
        except RankfoldError as error:
            self.failure = error
            if isinstance(error, Inconsistent | TooLarge | NotFound):
                self.since = self._clock()
            raise
        self.failure, self.since = None, self._clock()


def flush(
    folder: Path, transport: Sends, patience: float, say: Say, clock: Callable[[], float]
) -> int:
    """Deliver everything that no live process will deliver; return the exit code.

    Args:
        folder: the spool.
        transport: where to.
        patience: for how many seconds to go on while nothing gets through.
        say: takes a line for the user.
        clock: seconds that only grow.
    """
    watched = Watched(transport, clock)
    outbox = Outbox(MAX_ITEMS, MAX_BYTES, clock)
    sender = Sender(outbox, watched, f"the spool {folder}", clock=clock, patient=True)
    keeper = Keeper(folder, outbox, clock=clock, fed=sender.nudge)
    keeper.start()
    sender.start()
    said = ""
    while left := sender.flush(PROGRESS_EVERY):
        if _is_hopeless(watched, clock() - watched.since > patience):
            break
        now = f"delivered {outbox.delivered}, refused {outbox.dropped}, at least {left} wait"
        if now != said:
            say(now)
        said = now
    sender.stop(STOPPING)
    left = len(outbox)
    keeper.stop(STOPPING)
    _sum_up(keeper, say)
    say(f"delivered {outbox.delivered}, refused {outbox.dropped}, left {left}")
    return _exit_code(left, outbox.dropped, keeper, watched, say)


def _is_hopeless(watched: Watched, late: bool) -> bool:
    failure = watched.failure
    refused = failure is not None and not failure.retryable
    return late or (refused and not isinstance(failure, Inconsistent | TooLarge | NotFound))


def _sum_up(keeper: Keeper, say: Say) -> None:
    if keeper.busy:
        say(f"{keeper.busy} of its files belong to processes that live, which deliver them")
    for path in sorted(keeper.unreadable):
        say(f"{path} cannot be read and is left as it is")


def _exit_code(left: int, refused: int, keeper: Keeper, watched: Watched, say: Say) -> int:
    if left:
        failure = watched.failure
        say(f"what is left stays in {keeper.folder}: {failure or 'it was not brought in time'}")
        return UNREACHABLE if failure is None or failure.retryable else USAGE
    return FAILED if keeper.unreadable or refused else DONE
