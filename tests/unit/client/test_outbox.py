from __future__ import annotations

import gc
from fractions import Fraction
from typing import cast

import pytest

from rankfold.partial import Partial, Worst
from rankfold_client.items import FINISH, Item, commit_item, pack, partial_item, size_of, unpack
from rankfold_client.outbox import Outbox
from rankfold_client.report import encode
from unit.client.fakes import Clock


def commit(number: int) -> Item:
    """Return an item that can be told from others."""
    return commit_item(number, 1)


def first(box: Outbox, most: int) -> list[Item]:
    """Return the items that would be sent now."""
    return [unpack(packed) for packed in box.peek(most)[1]]


def test_outbox_gives_items_in_order_and_keeps_them_until_settled() -> None:
    """What is looked at stays inside, so that the same is sent again."""
    box = Outbox(10, 10_000, Clock())
    assert [box.put(commit(n)) for n in range(3)] == [1, 2, 3]
    assert box.peek(2)[0] is box.own
    assert first(box, 2) == first(box, 2) == [commit(0), commit(1)]
    box.settle(2, delivered=True)
    assert (first(box, 5), len(box), box.dropped) == ([commit(2)], 1, 0)


def test_outbox_drops_the_newest_when_full() -> None:
    """Beyond either bound an item is counted and not kept, and room comes back."""
    box = Outbox(2, 10_000, Clock())
    assert [box.put(commit(n)) for n in range(4)] == [1, 2, 0, 0]
    assert (first(box, 9), box.dropped, box.overflow) == ([commit(0), commit(1)], 2, 2)
    box.settle(1, delivered=False)
    assert box.put(commit(9)) == 2
    assert (box.dropped, box.overflow) == (3, 2)
    narrow = Outbox(10, 2 * size_of(pack(commit(0))), Clock())
    assert [narrow.put(commit(n)) for n in range(3)] == [1, 2, 0]


def test_outbox_knows_the_age_of_the_oldest() -> None:
    """The age is the oldest item's, and 0 where nothing waits."""
    clock = Clock()
    box = Outbox(10, 10_000, clock)
    assert box.age() == 0.0
    box.put(commit(0))
    clock.now += 2.5
    box.put(commit(1))
    assert box.age() == 2.5


def test_outbox_gives_a_finish_alone_and_last() -> None:
    """A finish never shares a batch with what comes before or after it."""
    box = Outbox(10, 10_000, Clock())
    for item in (commit(0), commit(1), FINISH, commit(2)):
        box.put(item)
    assert first(box, 10) == [commit(0), commit(1)]
    box.settle(2, delivered=True)
    assert first(box, 10) == [FINISH]
    box.settle(1, delivered=True)
    assert first(box, 10) == [commit(2)]


def test_outbox_wait_ends_with_its_condition() -> None:
    """Waiting for what already holds takes no time; for what never does, the time given."""
    box = Outbox(10, 10_000, Clock())
    assert box.wait_for(lambda: True, 60.0)
    assert not box.wait_for(lambda: False, 0.0)


def test_outbox_counts_what_it_cannot_hold() -> None:
    """What is neither a number nor a string is given up with a reason, and raises nothing."""
    box = Outbox(10, 10_000, Clock())
    assert box.put(partial_item("s", 7, 0, Partial(1, 1, 0.5, cast("float", Fraction(1, 2))))) == 0
    assert (box.ready, box.dropped, box.own.dropped) == (0, 1, 1)
    assert "series 's' of iteration 7: unmarshallable" in box.why_full


def test_outbox_costs_training_no_garbage_collection() -> None:
    """Neither putting nor sending leaves containers behind, which would set off collections."""
    box = Outbox(100_000, 1 << 30, Clock())
    worst = Worst((0, 1), 0.5, float("nan"), 3, 17, "sample")
    gc.collect()
    before, tracked = [stats["collections"] for stats in gc.get_stats()], len(gc.get_objects())
    for number in range(50_000):
        partial = Partial(9, 1, 0.5, 0.5, 0, 0.25, number, 10, worst)
        box.put(partial_item("s", 0, number, partial))
    while box.ready:
        _, items = box.peek(1000)
        encode({}, items)
        box.settle(len(items), delivered=True)
    after = [stats["collections"] for stats in gc.get_stats()]
    # The youngest may be looked at where what the test holds itself adds to them.
    assert after[0] - before[0] <= 2
    assert after[1:] == before[1:]
    assert len(gc.get_objects()) - tracked < 100


def test_outbox_hands_on_what_a_signal_raised_while_it_began_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C is a KeyboardInterrupt at every moment, and the outbox is as usable as before."""
    outbox = Outbox(10, 10_000, Clock())
    changed = outbox._changed
    release = changed._release_save

    def interrupted() -> None:
        release()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(changed, "_release_save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            outbox.wait_for(lambda: False, 1.0)
    assert outbox.wait_for(lambda: True, 1.0)
