from __future__ import annotations

from rankfold_client.items import FINISH, Item, commit_item, size_of
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
