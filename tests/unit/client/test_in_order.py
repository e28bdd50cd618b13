from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from rankfold_client.in_order import InOrder
from rankfold_client.items import commit_item, partial_item
from unit.client.fakes import Later

COMMIT = commit_item(0, 1)


class Outlet:
    """What comes out, and why something did not."""

    def __init__(self, most: int = 10, pause: Callable[[], None] = lambda: None) -> None:
        self.items: list[Any] = []
        self.given_up: list[str] = []
        self.way = InOrder(self.put, self.given_up.append, most, pause)

    def put(self, item: Any) -> int:
        """As an outbox."""
        self.items.append(item)
        return len(self.items)

    def partial(self, later: Later, microbatch: int = 0) -> int:
        """Put a partial that is known later."""
        return self.way.put_pending(
            later,  # type: ignore[arg-type]
            lambda found: partial_item("s", 0, microbatch, found),
        )


def test_items_go_straight_on_where_nothing_waits() -> None:
    """Without an accelerator an item is handed on in the call."""
    outlet = Outlet()
    assert [outlet.way.put(COMMIT), outlet.way.put(COMMIT)] == [1, 2]
    assert (outlet.items, len(outlet.way)) == ([COMMIT, COMMIT], 0)


def test_a_commit_never_overtakes_its_partials() -> None:
    """What comes behind a pending partial waits for it, whichever is ready first."""
    outlet, first, second = Outlet(), Later(), Later()
    outlet.partial(first)
    outlet.partial(second, 1)
    outlet.way.put(COMMIT)
    second.known = True
    outlet.way.advance()
    assert (outlet.items, len(outlet.way)) == ([], 3)
    first.known = True
    outlet.way.advance()
    assert [item[:4] for item in outlet.items] == [("p", "s", 0, 0), ("p", "s", 0, 1), COMMIT]
    assert len(outlet.way) == 0


@pytest.mark.parametrize("error", [ValueError("mask"), RuntimeError("device")])
def test_what_failed_is_given_up_and_the_rest_goes_on(error: Exception) -> None:
    """A partial that will never be known does not hold up what is behind it."""
    outlet, broken = Outlet(), Later(error)
    outlet.partial(broken)
    outlet.way.put(COMMIT)
    broken.known = True
    outlet.way.advance()
    assert (outlet.items, outlet.given_up) == ([COMMIT], [str(error)])


def test_what_waits_is_bounded() -> None:
    """A device that hangs does not take the memory of the process."""
    outlet = Outlet(most=2)
    assert [outlet.partial(Later(), n) for n in range(3)] == [1, 2, 0]
    assert len(outlet.way) == 2
    assert outlet.given_up == ["the accelerator is too far behind"]


def test_training_comes_to_its_turn_while_many_are_handed_on() -> None:
    """Whoever puts waits for one item at most, not for all that came meanwhile."""

    def train() -> None:
        trainer = threading.Thread(target=outlet.way.put, args=(COMMIT,), daemon=True)
        trainer.start()
        trainer.join(30.0)
        assert not trainer.is_alive()

    outlet, laters = Outlet(pause=train), [Later(), Later()]
    for number, later in enumerate(laters):
        outlet.partial(later, number)
        later.known = True
    outlet.way.advance()
    assert [item[0] for item in outlet.items] == ["p", "p"]
    outlet.way.advance()
    assert outlet.items[2:] == [COMMIT, COMMIT]
