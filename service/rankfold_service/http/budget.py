"""How many bytes of bodies may be worked on at once, whoever sends them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

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

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Yield a request's share; it is given back at the end, however it ends."""
        share = Share(self)
        try:
            yield share
        finally:
            self._taken -= share.size

    def take(self, size: int) -> None:
        """Take bytes for a request.

        Raises:
            Overloaded: others have them; nothing was taken.
        """
        if self._taken + size > self._limit:
            raise Overloaded(f"over {self._limit} bytes of reports are being worked on")
        self._taken += size


class Share:
    """What one request has taken of a budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.size = 0

    def take(self, size: int) -> None:
        """Take more bytes; see `Budget.take`."""
        self._budget.take(size)
        self.size += size

    async def counted(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield chunks, each taken from the budget before it is kept."""
        async for chunk in chunks:
            self.take(len(chunk))
            yield chunk
