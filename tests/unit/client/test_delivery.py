"""Items behind an accelerator, through threads as they run in a trainer."""

from __future__ import annotations

import time

import pytest

import rankfold_client as rf
from rankfold_client.delivery import Delivery
from rankfold_client.items import Item, commit_item, partial_item
from rankfold_client.origin import Origin
from rankfold_client.outbox import Outbox
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
