"""How many bytes of bodies may be worked on at once, whoever sends them."""

from __future__ import annotations

from rankfold.errors import Overloaded


class Budget:
    """Bytes that all requests share.

    Args:
        limit: how many there are; one request's body must fit.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0

    @property
    def taken(self) -> int:
        """How many bytes are worked on now."""
        return self._taken

    def share(self) -> Share:
        """Return a request's share, for a `with` block."""
        return Share(self)

    def take(self, size: int) -> None:
        """Take bytes for a request.

        Raises:
            Overloaded: others have them; nothing was taken.
        """
        if self._taken + size > self._limit:
            raise Overloaded(f"over {self._limit} bytes of reports are being worked on")
        self._taken += size

    def give_back(self, size: int) -> None:
        """Give back bytes that were taken."""
        self._taken -= size


class Share:
    """What one request has taken of a budget; given back at the end of its `with` block."""

    __slots__ = ("_budget", "size")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.size = 0

    def __enter__(self) -> Share:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()

    def take(self, size: int) -> None:
        """Take more bytes; see `Budget.take`."""
        self._budget.take(size)
        self.size += size

    def give_back(self) -> None:
        """Give back all that was taken."""
        self._budget.give_back(self.size)
        self.size = 0
