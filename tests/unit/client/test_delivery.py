"""Items behind an accelerator, through threads as they run in a trainer."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rankfold_client as rf
from rankfold_client.delivery import Delivery
from rankfold_client.in_order import InOrder
from rankfold_client.items import Item, commit_item, partial_item
from rankfold_client.origin import Origin
from rankfold_client.outbox import Outbox
from rankfold_client.spool.records import from_record
from rankfold_client.spool.segment import Segment
from rankfold_client.spool.writer import Writer
from unit.client.fakes import CLEAN, FakeTransport, Later, microbatches

OWN = {"project": "p", "run": "r", "attempt": 0, "rank": 0}
SOON = 30.0


def started(transport: FakeTransport, most: int = 100) -> Delivery:
    """Return a delivery that sends."""
    outbox = Outbox(1000, 1 << 20, time.monotonic, Origin(OWN))
    delivery = Delivery("rank 0 of run r", outbox, transport, most=most)
    delivery.start()
    return delivery


def put(delivery: Delivery, later: Later, microbatch: int) -> None:
    """Put a partial that is known later."""

    def make(partial: rf.Partial) -> Item:
        return partial_item("s", 0, microbatch, partial)

    delivery.put_pending(later, make)  # type: ignore[arg-type]


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("most", [20, 100_000])
def test_delivery_flushes_what_was_there_though_more_comes_all_the_time(
    tmp_path: Path, on_disk: bool, most: int
) -> None:
    """Who flushes beside a thread that reports waits for what was reported before, not for ever."""
    own, transport = Origin(OWN), FakeTransport()
    writer = Writer(tmp_path, own, 1 << 28) if on_disk else None
    outbox = Outbox(most, 1 << 28, time.monotonic, own, writer)
    delivery = Delivery("rank 0 of run r", outbox, transport, writer)
    delivery.start()
    over = threading.Event()

    def report() -> None:
        number = 1_000_000
        while not over.wait(0.0005):
            delivery.put(partial_item("s", 1, number, CLEAN))
            number += 1

    other = threading.Thread(target=report)
    other.start()
    begun = time.monotonic()
    try:
        for number in range(5):
            delivery.put(partial_item("s", 0, number, CLEAN))
            left = delivery.flush(SOON)
            assert left <= delivery.dropped
            taken = Counter(microbatches(transport.accepted))
            assert taken[0, number] == 1 or delivery.dropped
    finally:
        over.set()
        other.join()
    assert time.monotonic() - begun < SOON / 2
    assert delivery.close(SOON, finish=False) == delivery.dropped


def test_delivery_keeps_the_order_behind_an_accelerator() -> None:
    """What comes after a pending partial waits for it, a commit too, and a flush for all."""
    transport, laters = FakeTransport(), [Later(), Later()]
    delivery = started(transport)
    for microbatch, later in enumerate(laters):
        put(delivery, later, microbatch)
    delivery.put(partial_item("s", 0, 2, CLEAN))
    delivery.put(commit_item(0, 3))
    laters[1].known = True
    assert delivery.flush(0.05) == 4
    assert microbatches(transport.accepted) == []
    laters[0].known = True
    assert delivery.flush(SOON) == 0
    assert microbatches(transport.accepted) == [(0, 0), (0, 1), (0, 2)]
    assert delivery.close(SOON, finish=True) == 0
    assert len(transport.finished) == 1


def test_delivery_counts_what_an_accelerator_could_not_say(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A comparison that failed, or waits for ever, is no silent gap."""
    transport, failed, never = FakeTransport(), Later(ValueError("mask must hold 0 and 1")), Later()
    delivery = started(transport, most=3)
    failed.known = True
    put(delivery, failed, 0)
    put(delivery, never, 1)
    delivery.put(commit_item(0, 2))
    # One that was given up, one that waits for the accelerator, and one behind it.
    assert delivery.flush(0.2) == 3
    assert delivery.dropped == 1
    for number in range(5):
        delivery.put(partial_item("s", 1, number, CLEAN))
    assert delivery.dropped == 5
    # Two that wait for the accelerator, one behind them, five that are given up.
    assert delivery.close(0.2, finish=True) == 8
    assert (transport.finished, transport.accepted[-1]["dropped"]) == ([], 5)
    assert "mask must hold 0 and 1" in caplog.text


@pytest.mark.parametrize("where", [(InOrder, "put"), (Outbox, "_enter")])
@pytest.mark.parametrize("before", [True, False])
def test_delivery_tells_of_what_came_too_late_for_a_handlers_close(
    monkeypatch: pytest.MonkeyPatch, where: tuple[type, str], before: bool
) -> None:
    """A close in the middle of a report has it, or the report raises and the next close counts."""
    transport = FakeTransport()
    delivery = started(transport)
    assert delivery.flush(SOON) == 0
    owner, name = where
    whole = getattr(owner, name)

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.setattr(owner, name, whole)
        if before:
            assert delivery.close(SOON, finish=True) == 0
        found = whole(*arguments)
        if not before:
            assert delivery.close(SOON, finish=True) == 0
        return found

    monkeypatch.setattr(owner, name, interrupted)
    if before:
        with pytest.raises(RuntimeError, match="rank 0 of run r was closed in the middle of this"):
            delivery.put(partial_item("s", 0, 0, CLEAN))
    else:
        delivery.put(partial_item("s", 0, 0, CLEAN))
    assert delivery.close(SOON, finish=True) == before
    assert len(microbatches(transport.accepted)) == (not before)


def test_delivery_hands_on_what_an_accelerator_said_while_a_handler_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The background needs nothing that the interrupted report has."""
    transport, later = FakeTransport(), Later()
    delivery = started(transport)
    put(delivery, later, 0)
    whole, took = InOrder._queue, list[float]()

    def interrupted(*arguments: Any) -> int:
        monkeypatch.setattr(InOrder, "_queue", whole)
        later.known, begun = True, time.monotonic()
        assert delivery.close(SOON, finish=False) == 0
        took.append(time.monotonic() - begun)
        return whole(*arguments)

    monkeypatch.setattr(InOrder, "_queue", interrupted)
    with pytest.raises(RuntimeError, match="not delivered"):
        delivery.put(partial_item("s", 0, 1, CLEAN))
    assert took[0] < SOON / 2
    assert microbatches(transport.accepted) == [(0, 0)]


def test_delivery_tells_of_a_pending_item_that_came_too_late() -> None:
    """One that an accelerator has still to compute is not lost without a word either."""
    delivery = started(FakeTransport())
    assert delivery.close(SOON, finish=False) == 0
    with pytest.raises(RuntimeError, match="not delivered"):
        put(delivery, Later(), 0)
    assert delivery.close(SOON, finish=False) == 1


def test_delivery_that_a_handler_closes_amid_an_append_does_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append goes on after the handler, into its own file, where the next process finds it."""
    own = Origin(OWN)
    writer = Writer(tmp_path, own, 1 << 20)
    outbox = Outbox(1000, 1 << 20, time.monotonic, own, writer)
    delivery = Delivery("rank 0 of run r", outbox, FakeTransport(), writer)
    delivery.start()
    while writer.current is None:
        time.sleep(0.001)
    assert delivery.flush(SOON) == 0
    whole, took = Segment.append, list[float]()

    def interrupted(segment: Segment, record: bytes) -> None:
        monkeypatch.setattr(Segment, "append", whole)
        begun = time.monotonic()
        assert delivery.close(SOON, finish=False) == 0
        took.append(time.monotonic() - begun)
        whole(segment, record)

    monkeypatch.setattr(Segment, "append", interrupted)
    with pytest.raises(RuntimeError, match="not delivered"):
        delivery.put(partial_item("s", 0, 7, CLEAN))
    assert took[0] < SOON / 2
    (segment,) = writer.segments
    segment.close()
    left = Segment.claim(segment.path)
    assert left is not None
    assert [from_record(record)[:4] for record, _ in left.loaded] == [("p", "s", 0, 7)]
    left.close()
