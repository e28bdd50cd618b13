"""What travels: a report in columns, its receipt, the limits and the names that are allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import compress

from rankfold.errors import FieldError
from rankfold.partial import PartialColumns
from rankfold.rules import Rule

API_VERSION = 1
REPORT_PATH = f"/api/v{API_VERSION}/partials"
# Said of a path outside of the API: by it readers tell a wrong address from an unknown run.
UNSERVED = "nothing is served at this path"

MAX_META = 64
MAX_META_VALUE = 500
MAX_ITEMS = 10_000
MAX_BODY = 4 * 1024 * 1024


@dataclass(slots=True)
class ScalarColumns:
    """The scalars of one report as columns of one length.

    Attributes:
        rule: the reporter's, or what the rules file says where the reporter left it out.
        is_global: the value is already reduced over ranks; its identity has no rank.
    """

    key: Sequence[str] = ()
    iteration: Sequence[int] = ()
    microbatch: Sequence[int] = ()
    value: Sequence[float] = ()
    weight: Sequence[int] = ()
    rule: Sequence[Rule] = ()
    is_global: Sequence[bool] = ()

    def __len__(self) -> int:
        return len(self.key)

    def only_global(self) -> ScalarColumns:
        """Return those that belong to no rank."""
        columns = (getattr(self, each.name) for each in fields(self))
        return ScalarColumns(*(list(compress(column, self.is_global)) for column in columns))


@dataclass(slots=True)
class Commit:
    """A rank's word that an iteration is over and how many microbatches it had."""

    iteration: int
    microbatches: int


@dataclass(slots=True)
class Report:
    """One request of one rank, validated."""

    run: str
    rank: int
    project: str = "default"
    attempt: int = 0
    world_size: int | None = None
    partials: PartialColumns = field(default_factory=PartialColumns)
    scalars: ScalarColumns = field(default_factory=ScalarColumns)
    commits: list[Commit] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.partials) + len(self.scalars)

    def iterations(self) -> set[int]:
        """Return the iterations of which it speaks."""
        return {
            *self.partials.iteration,
            *self.scalars.iteration,
            *(commit.iteration for commit in self.commits),
        }


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a report's partials and scalars; the three add up to their number."""

    accepted: int = 0
    duplicates: int = 0
    conflicts: int = 0


def escape_pointer(token: str) -> str:
    """Return a member's name as a token of a JSON pointer (RFC 6901, section 3)."""
    return token.replace("~", "~0").replace("/", "~1")


def pointer(*tokens: str | int) -> str:
    """Return the JSON pointer that goes through these members and indices."""
    return "".join(f"/{escape_pointer(str(token))}" for token in tokens)


def field_error(reason: str, *tokens: str | int) -> FieldError:
    """Return the fault at the place that the tokens lead to."""
    return FieldError(pointer(*tokens), reason)
