"""Refuses a body that holds more than any report may, before it is taken apart.

A list is known to be too long, or its first item to be wrong, only once all of it is made into
values, which takes seconds where there are a million. To count commas and brackets takes
milliseconds, and little more where very many of them stand in strings.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rankfold.errors import TooLarge

# Never goes back, and takes a string that does not end for one that ends there: otherwise each
# quote in it would be tried as a beginning.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


class Extent(NamedTuple):
    """How many values of a document another one follows, and how many are objects or arrays."""

    followed: int
    containers: int

    def exceeds(self, most: Extent) -> bool:
        """Whether there is more of anything."""
        return self.followed > most.followed or self.containers > most.containers


def most_of(max_items: int) -> Extent:
    """Return more than a report has whose three lists have so many items, with every member."""
    return Extent(32 * max_items + 1000, 5 * max_items + 100)


def check_extent(document: bytes, max_items: int) -> None:
    """Refuse a document that holds more than a report with lists of so many items.

    Raises:
        TooLarge: it does.
    """
    most = most_of(max_items)
    # What stands in strings too, for that is seldom much, and quicker.
    if _extent(document, 0, len(document)).exceeds(most) and _outside_strings(document, most):
        raise TooLarge(
            f"the body holds more than a report may; {max_items} items are allowed in each list"
        )


def _outside_strings(document: bytes, most: Extent) -> bool:
    """Whether there is more than that outside of strings; looks no further than it has to."""
    found, position = Extent(0, 0), 0
    for string in _STRING.finditer(document):
        more = _extent(document, position, string.start())
        found = Extent(found.followed + more.followed, found.containers + more.containers)
        if found.exceeds(most):
            return True
        position = string.end()
    rest = _extent(document, position, len(document))
    return Extent(found.followed + rest.followed, found.containers + rest.containers).exceeds(most)


def _extent(document: bytes, start: int, end: int) -> Extent:
    openings = document.count(b"{", start, end) + document.count(b"[", start, end)
    return Extent(document.count(b",", start, end), openings)
