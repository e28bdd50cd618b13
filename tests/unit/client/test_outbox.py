from __future__ import annotations

import gc
from fractions import Fraction
from pathlib import Path
from typing import cast

import pytest

from rankfold.partial import Partial, Worst
from rankfold_client.items import FINISH, Item, commit_item, pack, partial_item, size_of, unpack
from rankfold_client.origin import Origin
from rankfold_client.outbox import Outbox
from rankfold_client.report import encode
from rankfold_client.spool.records import from_record
from rankfold_client.spool.segment import Segment
from rankfold_client.spool.writer import Writer
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
    assert box.changes.wait_for(lambda: True, 60.0)
    assert not box.changes.wait_for(lambda: False, 0.0)


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


def test_outbox_hands_on_what_a_signal_raised_while_somebody_waits() -> None:
    """Ctrl-C ends the wait, and nobody is told of changes who does not wait any more."""
    outbox = Outbox(10, 10_000, Clock())

    def interrupted() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outbox.changes.wait_for(interrupted, 1.0)
    assert not outbox.changes._waiting
    assert outbox.changes.wait_for(lambda: True, 1.0)


class Looks:
    """Whether what was there when this was made is settled."""

    def __init__(self, box: Outbox) -> None:
        self._looks = box.passing()
        self.over = False
        self.look()

    def look(self) -> bool:
        """Look once more."""
        self.over = self.over or next(self._looks, True)
        return self.over


def test_outbox_knows_when_what_was_there_is_settled() -> None:
    """What is put afterwards is not waited for, what is given up as little as what is delivered."""
    box = Outbox(10, 10_000, Clock())
    assert Looks(box).over
    for iteration in range(3):
        box.put(commit(iteration))
    looks = Looks(box)
    box.put(commit(3))
    box.settle(2, delivered=True)
    assert not looks.look()
    box.settle(1, delivered=False)
    # The aggregator has still to hear of it.
    assert not looks.look()
    box.own.told = 1
    assert looks.look()
    assert box.ready == 1


def test_outbox_waits_for_what_was_on_disk_only(tmp_path: Path) -> None:
    """It comes into memory behind what was there, and what comes later may be there before."""
    own = Origin({"project": "p", "run": "r", "attempt": 0, "rank": 0})
    writer = Writer(tmp_path, own, 1 << 20)
    writer.rotate()
    box = Outbox(2, 10_000, Clock(), own, writer)
    for iteration in range(3):
        box.put(commit(iteration))
    looks = Looks(box)
    box.settle(2, delivered=True)
    assert not looks.look()
    (segment,) = writer.segments
    end, number = box.on_disk_only(segment)
    assert number == 1
    found = segment.load(segment.read, end).records
    box.put(commit(3))
    box.feed(segment, [(from_record(record), end) for record, end in found], 0)
    assert not looks.look()
    box.settle(1, delivered=True)
    assert looks.look()
    assert len(box) == 1
    segment.close()


def test_outbox_waits_for_what_others_left(tmp_path: Path) -> None:
    """A spool that nobody has looked into, and what was found there."""
    box = Outbox(10, 10_000, Clock())
    box.unseen = 1
    looks = Looks(box)
    assert not looks.look()
    other = Segment.create(tmp_path, "key", Origin({"rank": 0}))
    other.unread, box.unseen = 1, 0
    box.adopt(other)
    assert not looks.look()
    box.feed(other, [(commit(0), other.end)], 0)
    assert not looks.look()
    box.settle(1, delivered=True)
    assert looks.look()
    other.close()
