from __future__ import annotations

import gc

from rankfold.partial import Partial, Worst
from rankfold_client.items import FINISH, Item, commit_item, partial_item, size_of
from rankfold_client.outbox import Outbox
from unit.client.fakes import Clock


def commit(number: int) -> Item:
    """Return an item that can be told from others."""
    return commit_item(number, 1)


def test_outbox_gives_items_in_order_and_keeps_them_until_settled() -> None:
    """What is looked at stays inside, so that the same is sent again."""
    box = Outbox(10, 10_000, Clock())
    assert [box.put(commit(n)) for n in range(3)] == [1, 2, 3]
    assert box.peek(2) == box.peek(2) == (box.own, [commit(0), commit(1)])
    box.settle(2, delivered=True)
    assert (box.peek(5)[1], len(box), box.dropped) == ([commit(2)], 1, 0)


def test_outbox_drops_the_newest_when_full() -> None:
    """Beyond either bound an item is counted and not kept, and room comes back."""
    box = Outbox(2, 10_000, Clock())
    assert [box.put(commit(n)) for n in range(4)] == [1, 2, 0, 0]
    assert (box.peek(9)[1], box.dropped, box.overflow) == ([commit(0), commit(1)], 2, 2)
    box.settle(1, delivered=False)
    assert box.put(commit(9)) == 2
    assert (box.dropped, box.overflow) == (3, 2)
    narrow = Outbox(10, 2 * size_of(commit(0)), Clock())
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
    assert box.peek(10)[1] == [commit(0), commit(1)]
    box.settle(2, delivered=True)
    assert box.peek(10)[1] == [FINISH]
    box.settle(1, delivered=True)
    assert box.peek(10)[1] == [commit(2)]


def test_outbox_wait_ends_with_its_condition() -> None:
    """Waiting for what already holds takes no time; for what never does, the time given."""
    box = Outbox(10, 10_000, Clock())
    assert box.wait_for(lambda: True, 60.0)
    assert not box.wait_for(lambda: False, 0.0)


def test_outbox_costs_training_no_full_garbage_collection() -> None:
    """Of a long queue nothing is tracked, so that it sets off no pass over the whole process."""
    box = Outbox(100_000, 1 << 30, Clock())
    worst = Worst((0, 1), 0.5, float("nan"), 3, 17, "sample")
    gc.collect()
    before = gc.get_stats()[2]["collections"], len(gc.get_objects())
    for number in range(50_000):
        partial = Partial(9, 1, 0.5, 0.5, 0, 0.25, number, 10, worst)
        box.put(partial_item("s", 0, number, partial))
    gc.collect(1)
    assert gc.get_stats()[2]["collections"] == before[0]
    # The youngest are looked at once more before they are left alone.
    assert len(gc.get_objects()) - before[1] < 10_000
    assert box.ready == 50_000
