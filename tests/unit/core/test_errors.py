"""The tree of errors: drawn as it is, a code for each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest

from rankfold import errors
from rankfold.errors import FieldError, Inconsistent, Overloaded, RankfoldError, Unreachable


def classes() -> list[type[RankfoldError]]:
    """Return every error class of the module."""
    found = [c for _, c in inspect.getmembers(errors, inspect.isclass)]
    return [c for c in found if issubclass(c, Exception)]


def drawn() -> Iterator[tuple[str, str]]:
    """Yield (class, parent) of the tree in the module's docstring."""
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^((?:│   |├── |└── |    )*)(\w+)(  +\S.*)?$", line)
        if match and (match[1] or match[2] == "RankfoldError"):
            depth = len(match[1]) // 4
            above[depth:] = [match[2]]
            yield match[2], above[depth - 1] if depth else "Exception"


def test_tree_is_drawn_as_it_is() -> None:
    """The drawing names each class once, below its parent, and no other."""
    real = {c.__name__: c.__base__.__name__ for c in classes() if c.__base__}
    lines = list(drawn())
    assert dict(lines) == real
    assert len(lines) == len(real)


def test_every_error_has_a_code_of_its_own() -> None:
    """Programs switch on codes: each class sets one, none twice, in plain words."""
    codes = [vars(c).get("code") for c in classes()]
    assert None not in codes
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", str(code)) for code in codes)


def test_every_error_has_a_docstring_of_its_own() -> None:
    """Each class says when it is raised."""
    assert [c.__name__ for c in classes() if not vars(c).get("__doc__")] == []


def test_only_what_may_be_sent_again_is_retryable() -> None:
    """The words that make a client try again."""
    again = {c.__name__ for c in classes() if c.retryable}
    store = {"StoreUnavailable", "StoreDamaged"}
    assert again == {"Unavailable", "Overloaded", "Unreachable", *store}


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ([FieldError("/rank", "why")], "/rank: why"),
        ([FieldError("", "why")], "/: why"),
        ([FieldError(f"/{i}", "x") for i in range(5)], "/0: x; /1: x; /2: x"),
    ],
)
def test_inconsistent_report_names_its_first_faults(faults: list[FieldError], message: str) -> None:
    """The message shows three; all of them are kept."""
    error = Inconsistent(faults)
    assert (str(error), error.errors) == (message, faults)


def test_unavailable_says_when_to_come_back() -> None:
    """A second, unless somebody knows better."""
    assert (Overloaded("busy").retry_after, Overloaded("busy", 5.0).retry_after) == (1.0, 5.0)
    assert str(Overloaded("busy")) == "busy"
    assert str(Unreachable("nobody")) == "nobody"
