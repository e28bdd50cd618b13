"""Numbers, times and words look as people like to read them, whatever is in them."""

from __future__ import annotations

import io

import pytest

from rankfold_service.cli.text import Screen, ago, counted, number, plain, spans, visible

NOW = 1_764_600_000.0


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_visible_shows_what_would_act_on_a_terminal() -> None:
    """Escape sequences, line breaks and direction marks in a name are written out."""
    assert visible("a\x1b[2J\u2028\u202eb") == "a\\x1b[2J\\u2028\\u202eb"
    assert visible("実験 é") == "実験 é"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (0, "0"),
        (1234567, "1,234,567"),
        (2**64, "18,446,744,073,709,551,616"),
        (0.0, "0"),
        (7.450580596923828e-09, "7.45058e-09"),
        (0.25, "0.25"),
        ("NaN", "NaN"),
        (True, "yes"),
        (False, "no"),
    ],
)
def test_number_is_short_and_keeps_null_apart_from_zero(
    value: float | int | str | None, expected: str
) -> None:
    """Counts have separators, floats six digits, null is a dash."""
    assert number(value) == expected


def test_plain_writes_an_index_without_separators() -> None:
    """An iteration is a name, not a count."""
    assert (plain(12000), plain(None)) == ("12000", "-")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.4, "just now"),
        (-3.0, "just now"),
        (12.0, "12 s ago"),
        (200.0, "3 min ago"),
        (7200.0, "2 h ago"),
        (3 * 86400.0, "3 d ago"),
        (8 * 86400.0, "2025-11-23T14:40:00Z"),
        (-3600.0, "2025-12-01T15:40:00Z"),
        (1e300, "1970-01-01T00:00:00Z"),
        (-1e300, "9999-12-31T23:59:59Z"),
    ],
)
def test_ago_says_how_long_or_when(seconds: float, expected: str) -> None:
    """Recent times are relative; old ones, and those that a wrong clock made, are not."""
    assert ago(NOW - seconds, NOW) == expected


def test_ago_of_no_time_is_a_dash() -> None:
    """A rank that never reported has no last report."""
    assert ago(None, NOW) == "-"


def test_screen_of_a_pipe_has_no_edge_and_no_colour() -> None:
    """What is not a terminal gets everything, plainly."""
    assert Screen.of(io.StringIO()) == Screen(width=None, colour=False)


def test_screen_of_a_terminal_has_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal has a width and, unless NO_COLOR is set, colours."""
    monkeypatch.setenv("COLUMNS", "77")
    assert Screen.of(Terminal()) == Screen(width=77, colour=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert Screen.of(Terminal()) == Screen(width=77, colour=False)


def test_screen_paints_a_word_that_it_does_not_know_plainly() -> None:
    """A gate without a colour of its own is printed as it is."""
    assert Screen(colour=True).gate("unheard of") == "unheard of"


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 differences"), (1, "1 difference"), (2, "2 differences"), (1234, "1,234 differences")],
)
def test_counted_has_a_singular(count: int, expected: str) -> None:
    """One is one, and all else are many."""
    assert counted(count, "difference") == expected


def test_counted_knows_other_plurals() -> None:
    """A plural that does not end in s is given."""
    assert counted(1, "mismatch", "mismatches") == "1 mismatch"
    assert counted(3, "mismatch", "mismatches") == "3 mismatches"


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], "-"),
        ([7], "7"),
        ([0, 1], "0-1"),
        ([3, 0, 2, 1, 7, 9, 10], "0-3, 7, 9-10"),
        ([5, 5], "5"),
    ],
)
def test_spans_names_neighbours_together(numbers: list[int], expected: str) -> None:
    """A hundred ranks in a row are two numbers."""
    assert spans(numbers) == expected
