from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from rankfold.errors import (
    FieldError,
    Inconsistent,
    Overloaded,
    RankfoldError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unreachable,
)
from rankfold.partial import Partial
from rankfold.wire import Receipt
from rankfold_client.items import FINISH, OPEN, commit_item, partial_item, scalar_item
from rankfold_client.origin import Origin
from rankfold_client.outbox import Outbox
from rankfold_client.sender import BATCH, FIRST_BACKOFF, LINGER, MOST_BACKOFF, Sender
from unit.client.fakes import Clock, FakeTransport, microbatches

HEADER = {"project": "p", "run": "r", "attempt": 2, "rank": 3, "world_size": 8}


class Desk:
    """A sender with fakes around it, stepped by hand."""

    def __init__(
        self,
        answers: list[Exception | None] | None = None,
        judge: Callable[[dict[str, Any]], RankfoldError | None] | None = None,
        max_items: int = 10_000,
        meta: dict[str, str] | None = None,
        patient: bool = False,
    ) -> None:
        self.clock = Clock()
        self.transport = FakeTransport(answers, judge)
        self.outbox = Outbox(max_items, 1 << 30, self.clock, Origin(HEADER, meta))
        self.sender = Sender(
            self.outbox,
            self.transport,
            "rank 3 of run r",
            clock=self.clock,
            jitter=lambda: 1.0,
            patient=patient,
        )

    def put(self, *microbatches: int) -> None:
        """Put a partial for each microbatch."""
        for microbatch in microbatches:
            partial = Partial(valid=1, count=0, max=0.0, sum=0.0)
            self.outbox.put(partial_item("s", 0, microbatch, partial))

    def linger(self) -> None:
        """Let the time pass that items wait for others."""
        self.clock.now += LINGER

    def drain(self) -> None:
        """Step, letting time pass as the sender asks, until it has nothing to do."""
        while (delay := self.sender.step()) is not None:
            self.clock.now += delay


def test_sender_waits_for_a_fuller_batch() -> None:
    """Items linger for a second together and then travel as one report."""
    desk = Desk()
    assert desk.sender.step() is None
    desk.put(0, 1)
    assert desk.sender.step() == LINGER
    desk.clock.now += LINGER / 4
    desk.put(2)
    assert desk.sender.step() == LINGER * 3 / 4
    desk.clock.now += LINGER
    assert desk.sender.step() == 0.0
    assert microbatches(desk.transport.accepted) == [(0, 0), (0, 1), (0, 2)]
    assert len(desk.transport.accepted) == 1
    assert desk.sender.step() is None


def test_sender_sends_a_full_batch_at_once_and_in_order() -> None:
    """A thousand items do not linger, and what is over waits for the next report."""
    desk = Desk()
    desk.put(*range(BATCH + 5))
    assert desk.sender.step() == 0.0
    assert len(desk.transport.accepted[0]["partials"]["series"]) == BATCH
    desk.drain()
    assert microbatches(desk.transport.accepted) == [(0, n) for n in range(BATCH + 5)]


def test_sender_begins_with_the_header_and_meta_once() -> None:
    """The first report carries what describes the attempt; the next do not repeat it."""
    desk = Desk(meta={"dtype": "bfloat16"})
    desk.outbox.put(OPEN)
    desk.drain()
    desk.put(0)
    desk.drain()
    first, second = desk.transport.accepted
    assert first == HEADER | {"meta": {"dtype": "bfloat16"}}
    assert second.keys() == HEADER.keys() | {"partials"}


@pytest.mark.parametrize("error", [Unreachable("x"), Unavailable("x", 0.0), Overloaded("x", 0.0)])
def test_sender_sends_the_same_again_until_it_is_there(error: RankfoldError) -> None:
    """A report that failed is sent again byte for byte, though more has come in since."""
    desk = Desk([error] * 20)
    desk.put(0)
    desk.linger()
    desk.sender.step()
    desk.put(1)
    desk.drain()
    assert set(desk.transport.bodies[:21]) == {desk.transport.bodies[0]}
    assert microbatches(desk.transport.accepted) == [(0, 0), (0, 1)]
    assert desk.outbox.dropped == 0


def test_sender_backs_off_exponentially_to_a_bound() -> None:
    """With the largest jitter the waits double from half a second to half a minute."""
    desk = Desk([Unreachable("x")] * 8)
    desk.put(0)
    desk.linger()
    delays = []
    for _ in range(8):
        delay = desk.sender.step()
        assert delay is not None
        delays.append(delay)
        assert desk.sender.step() == delay  # not before that
        desk.clock.now += delay
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, MOST_BACKOFF, MOST_BACKOFF]
    desk.drain()
    desk.transport.answers = [Unreachable("x")]
    desk.put(1)
    desk.linger()
    assert desk.sender.step() == FIRST_BACKOFF  # success forgets the failures


def test_sender_waits_at_least_as_long_as_the_server_asks() -> None:
    """Retry-After is a floor, also while a flush hurries; jitter comes on top."""
    desk = Desk([Overloaded("x", 7.0)])
    desk.put(0)
    desk.linger()
    assert desk.sender.step() == 7.0 + FIRST_BACKOFF
    desk.sender.flush(0.0)
    assert desk.sender.step() == 7.0
    desk.clock.now += 7.0
    desk.drain()
    assert microbatches(desk.transport.accepted) == [(0, 0)]


def test_sender_flush_cuts_its_own_backoff_short() -> None:
    """A flush tries at once, however long the next try was away, and says what is left."""
    desk = Desk([Unreachable("x")] * 6)
    desk.put(0)
    desk.linger()
    for _ in range(6):
        desk.sender.step()
        desk.clock.now += 100.0
    desk.clock.now -= 99.0
    assert desk.sender.flush(0.0) == 1
    assert desk.sender.step() == 0.0
    assert desk.sender.flush(0.0) == 0


def test_sender_hurries_as_long_as_anybody_waits() -> None:
    """One flush that ends leaves the hurry of another as it is."""
    desk = Desk()
    desk.put(0)
    waiting = threading.Thread(target=desk.sender.flush, args=(30.0,))
    waiting.start()
    while not desk.sender._hurry:
        time.sleep(0.001)
    assert desk.sender.flush(0.0) == 1
    assert desk.sender.step() == 0.0
    desk.outbox.changes.notify()
    waiting.join()
    desk.put(1)
    assert desk.sender.step() == LINGER


def test_sender_is_in_no_hurry_after_a_flush_that_a_signal_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What comes later travels together again."""

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    desk = Desk()
    monkeypatch.setattr(desk.outbox.changes, "wait_for", interrupted)
    with pytest.raises(KeyboardInterrupt):
        desk.sender.flush(30.0)
    desk.put(0)
    assert desk.sender.step() == LINGER


def test_sender_gives_up_what_is_refused_and_says_so() -> None:
    """A refusal that sending again cannot mend loses the report, counted in the next one."""
    desk = Desk([Unauthenticated("no token")])
    desk.put(0, 1)
    desk.linger()
    assert desk.sender.step() == 0.0
    assert (len(desk.outbox), desk.outbox.dropped) == (0, 2)
    desk.drain()
    # The number goes without the world size, which may be what was refused.
    told = {name: value for name, value in HEADER.items() if name != "world_size"}
    assert desk.transport.accepted == [told | {"dropped": 2}]
    desk.put(2)
    desk.drain()
    assert desk.transport.accepted[1]["dropped"] == 2


def test_sender_does_not_repeat_a_refused_count_for_ever() -> None:
    """Where every report is refused the sender comes to rest."""
    desk = Desk(judge=lambda _: Unauthenticated("no token"))
    desk.put(0)
    desk.drain()
    assert len(desk.transport.bodies) == 2
    assert desk.outbox.dropped == 1


@pytest.mark.parametrize("kind", [TooLarge("x"), Inconsistent([FieldError("/partials", "x")])])
def test_sender_finds_the_one_that_is_refused(kind: RankfoldError) -> None:
    """Of a batch with one bad partial all others arrive, in order, and only one is lost."""

    def judge(body: dict[str, Any]) -> RankfoldError | None:
        return kind if 37 in body.get("partials", {}).get("microbatch", []) else None

    desk = Desk(judge=judge)
    desk.put(*range(100))
    desk.outbox.put(commit_item(0, 100))
    desk.drain()
    arrived = [microbatch for _, microbatch in microbatches(desk.transport.accepted)]
    assert arrived == [n for n in range(100) if n != 37]
    assert desk.outbox.dropped == 1
    assert desk.transport.accepted[-1].get("dropped") == 1


def test_sender_tells_what_found_no_room() -> None:
    """Items that a full queue dropped are told in the next report, even if it is empty."""
    desk = Desk(max_items=2)
    desk.put(0, 1, 2, 3)
    desk.drain()
    assert [r.get("dropped") for r in desk.transport.accepted] == [2]
    desk.put(4, 5, 6)
    assert desk.outbox.dropped == 3
    desk.drain()
    assert desk.transport.accepted[-1]["dropped"] == 3


def test_sender_finishes_after_everything_before() -> None:
    """A finish goes out by itself once the reports before it are accepted, and is retried."""
    desk = Desk([None, Unreachable("x")])
    desk.put(0)
    desk.outbox.put(FINISH)
    desk.linger()
    desk.sender.step()
    assert desk.transport.finished == []
    desk.drain()
    assert desk.transport.finished == [("p", "r", 2)]
    assert len(desk.transport.accepted) == 1


def test_sender_complains_at_most_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Failures are counted and written together, once a minute."""
    desk = Desk([Unreachable("refused")] * 100)
    desk.put(0)
    for _ in range(12):
        desk.clock.now += 10.0
        desk.sender.flush(0.0)
        desk.sender.step()
        desk.sender.complain()
    assert [r.getMessage() for r in caplog.records] == [
        "rank 3 of run r: 1 try failed (refused); 1 item waits",
        "rank 3 of run r: 6 tries failed (refused); 1 item waits",
    ]


def test_sender_complains_of_conflicts_and_losses(caplog: pytest.LogCaptureFixture) -> None:
    """What the aggregator found and what was lost is said with its reason."""
    desk = Desk([None, Unauthenticated("no token")], max_items=2)
    desk.transport.receipt = Receipt(conflicts=4)
    desk.put(0, 1, 2)
    desk.linger()
    desk.sender.step()
    desk.put(3)
    desk.linger()
    desk.sender.step()
    desk.sender.complain()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("rankfold", logging.WARNING)
    assert record.getMessage() == (
        "rank 3 of run r: 4 in conflict (the first report stands); 1 given up "
        "(series 's' of iteration 0: no token); 1 dropped (the queue is full); 0 items wait"
    )


def test_sender_names_the_scalar_that_was_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A scalar without a rule, which the aggregator refuses, is told by its key."""
    refusal = Inconsistent([FieldError("/scalars/rule/0", "the rules file has none for the key")])
    desk = Desk(judge=lambda body: refusal if "scalars" in body else None)
    desk.put(0)
    desk.outbox.put(scalar_item("actor/kl", 4, 0, 0.5, 1, None, False))
    desk.drain()
    desk.sender.complain()
    assert "1 given up (key 'actor/kl' of iteration 4: /scalars/rule/0: the rules" in caplog.text
    assert microbatches(desk.transport.accepted) == [(0, 0)]


def test_sender_gives_up_what_cannot_be_encoded(caplog: pytest.LogCaptureFixture) -> None:
    """What JSON cannot hold is lost alone, counted and logged, and all others arrive."""
    desk = Desk()
    desk.put(0, 1)
    for microbatch in (0, 1):
        partial = Partial(valid=1, count=1, max=0.5, sum=math.nan)
        desk.outbox.put(partial_item("odd", 7, microbatch, partial))
    desk.put(2, 3)
    desk.drain()
    desk.sender.complain()
    assert microbatches(desk.transport.accepted) == [(0, n) for n in range(4)]
    assert (len(desk.outbox), desk.outbox.dropped) == (0, 2)
    assert desk.transport.accepted[-1]["dropped"] == 2
    assert "2 given up (series 'odd' of iteration 7: /: cannot be encoded: Value" in caplog.text


def test_sender_thread_outlives_what_nobody_thought_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An error of the wrong kind is logged and the report is sent again."""
    desk = Desk([RuntimeError("a bug")])
    desk.put(0)
    desk.sender.start()
    # The clock stands still, so only the hurry of each flush brings the next try.
    while desk.sender.flush(0.01):
        pass
    desk.sender.stop(5.0)
    assert microbatches(desk.transport.accepted) == [(0, 0)]
    assert desk.transport.closed
    assert "a report could not be sent" in caplog.text
    assert json.loads(desk.transport.bodies[0]) == json.loads(desk.transport.bodies[-1])
