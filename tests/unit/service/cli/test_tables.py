"""Tables and numbers look as people like to read them, whatever is in them."""

from __future__ import annotations

import io

import pytest

from rankfold_service.cli.tables import (
    Column,
    Screen,
    ago,
    number,
    plain,
    shortened,
    table,
    visible,
    width_of,
)

NAMES = [Column("run", name=True), Column("count", number=True), Column("gate", gate=True)]
NOW = 1_764_600_000.0


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_table_aligns_names_left_and_numbers_right() -> None:
    """Names begin and numbers end in one column, and no line ends in spaces."""
    rows = [["qwen3-8b", "12", "pass"], ["a", "1,234", "incomplete"]]
    assert table(NAMES, rows, Screen()) == (
        "run       count  gate\n"
        "qwen3-8b     12  pass\n"
        "a         1,234  incomplete"
    )  # fmt: skip


def test_table_counts_wide_and_combining_characters_as_a_terminal_does() -> None:
    """A wide character takes two columns and a combining one none."""
    rows = [["実験", "1", "pass"], ["e\u0301tude", "2", "pass"]]
    assert table(NAMES, rows, Screen()) == (
        "run    count  gate\n"
        "実験       1  pass\n"
        "e\u0301tude      2  pass"
    )  # fmt: skip


def test_table_shortens_names_to_the_screen_and_nothing_else() -> None:
    """The widest names give way until the table fits; numbers stay whole."""
    rows = [["training/rollout_logprobs_mismatch_count", "123,456,789", "pass"]]
    assert table(NAMES, rows, Screen(width=40)) == (
        "run                          count  gate\n"
        "training/r…atch_count  123,456,789  pass"
    )  # fmt: skip


def test_table_keeps_names_readable_on_a_screen_that_is_too_narrow() -> None:
    """A name keeps some characters even where the table cannot fit."""
    rows = [["training/rollout_logprobs", "1", "pass"]]
    assert table(NAMES, rows, Screen(width=5)).splitlines()[1] == "train…gprobs      1  pass"


def test_table_leaves_names_whole_where_there_is_no_screen() -> None:
    """What goes into a file or a pipe can be searched for whole names."""
    name = "x" * 200
    assert name in table(NAMES, [[name, "1", "pass"]], Screen())


def test_table_colours_gates_without_disturbing_the_alignment() -> None:
    """Escape sequences take no columns."""
    columns = [Column("gate", gate=True), Column("run")]
    assert table(columns, [["fail", "a"], ["incomplete", "b"]], Screen(colour=True)) == (
        "\x1b[1mgate\x1b[0m        \x1b[1mrun\x1b[0m\n"
        "\x1b[31mfail\x1b[0m        a\n"
        "\x1b[33mincomplete\x1b[0m  b"
    )


def test_table_without_rows_is_its_titles() -> None:
    """An empty table still says what it would hold."""
    assert table(NAMES, [], Screen()) == "run  count  gate"


def test_table_shows_what_would_act_on_a_terminal() -> None:
    """Escape sequences, line breaks and direction marks in a name are written out."""
    assert visible("a\x1b[2J\u2028\u202eb") == "a\\x1b[2J\\u2028\\u202eb"
    assert visible("実験 é") == "実験 é"


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("short", 12, "short"),
        ("training/rollout_logprobs", 12, "train…gprobs"),
        ("実験実験実験実験", 9, "実験…実験"),
        ("実験実験実験実験", 8, "実…実験"),
    ],
)
def test_shortened_leaves_out_the_middle(text: str, width: int, expected: str) -> None:
    """Both ends stay, and the result is never wider than asked for."""
    assert shortened(text, width) == expected
    assert width_of(expected) <= width


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
