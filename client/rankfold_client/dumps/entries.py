"""What a dump holds: its tensors by name and index, each read only when it is compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

# More tensors than anybody dumps on purpose.
MOST = 100_000
# The name of a tensor, or of a list of them, that has none.
UNNAMED = "tensor"


class DumpError(Exception):
    """A dump cannot be read or compared; the message says what to do."""


class Index(NamedTuple):
    """Where a tensor stands in lists; what is in no list is the first of all."""

    iteration: int = 0
    microbatch: int = 0


class Kind(Enum):
    """Whether something may be log-probs."""

    FLOAT = "a float tensor"
    OTHER = "what holds no log-probs, such as integers and strings"
    REFUSED = "what may be meant as log-probs but cannot be compared"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a dump.

    Attributes:
        kind: whether it may be log-probs.
        what: its dtype, or what else it is, in words.
        load: reads it, where it is a tensor; raises DumpError.
    """

    kind: Kind
    what: str
    load: Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class Dump:
    """A file with tensors.

    Attributes:
        path: of the file.
        series: by name, the entries by index.
    """

    path: Path
    series: dict[str, dict[Index, Entry]] = field(default_factory=dict)

    def add(self, name: str, index: Index, entry: Entry) -> None:
        """Add an entry.

        Raises:
            DumpError: there is one already, or there are too many.
        """
        entries = self.series.setdefault(name, {})
        if index in entries:
            raise DumpError(f"two things in it are called {name!r}: name them apart")
        entries[index] = entry
        if len(entries) + len(self.series) > MOST:
            raise DumpError(f"it holds more than {MOST} tensors")


def unread(kind: Kind, what: str) -> Entry:
    """Return the entry of something that is never compared."""

    def refuse() -> Tensor:
        raise DumpError(f"{what} cannot be compared")

    return Entry(kind, what, refuse)
