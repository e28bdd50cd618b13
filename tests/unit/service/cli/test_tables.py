"""Tables are aligned, and make room on a narrow screen without cutting names."""

from __future__ import annotations

from rankfold_service.cli.tables import Column, table
from rankfold_service.cli.text import Screen

NAMES = [Column("run"), Column("count", number=True), Column("gate", gate=True)]


def test_table_aligns_names_left_and_numbers_right() -> None:
    """Names begin and numbers end in one column, and no line ends in spaces."""
    rows = [["qwen3-8b", "12", "pass"], ["a", "1,234", "incomplete"]]
    assert table(NAMES, rows, Screen()) == (
        "run       count  gate\n"
        "qwen3-8b     12  pass\n"
        "a         1,234  incomplete"
    )  # fmt: skip


def test_table_shows_what_would_do_something_to_a_terminal() -> None:
    """Titles and cells may come from elsewhere."""
    assert table([Column("\x1bk")], [["\x1b[2J"]], Screen()) == "\\x1bk\n\\x1b[2J"


def test_table_counts_wide_and_combining_characters_as_a_terminal_does() -> None:
    """A wide character takes two columns and a combining one none."""
    rows = [["実験", "1", "pass"], ["e\u0301tude", "2", "pass"]]
    assert table(NAMES, rows, Screen()) == (
        "run    count  gate\n"
        "実験       1  pass\n"
        "e\u0301tude      2  pass"
    )  # fmt: skip


def test_table_drops_columns_until_it_fits_and_says_which() -> None:
    """The columns that matter least go first, and only as many as have to."""
    columns = [Column("key"), Column("sum", drop=2), Column("max", drop=1), Column("value")]
    rows = [["training/rollout_logprobs_diff_mean", "0.125", "0.25", "0.5"]]
    assert table(columns, rows, Screen(width=50)) == (
        "key                                  max   value\n"
        "training/rollout_logprobs_diff_mean  0.25  0.5\n"
        "no room for: sum"
    )
    assert table(columns, rows, Screen(width=42)).endswith("\nno room for: sum, max")


def test_table_never_cuts_a_name() -> None:
    """Where nothing is left to drop, lines run over the edge: a name can be copied."""
    name = "x" * 200
    assert table(NAMES, [[name, "1", "pass"]], Screen(width=40)).splitlines()[1] == (
        f"{name}      1  pass"
    )


def test_table_makes_headings_of_what_groups_its_rows() -> None:
    """A group's name stands once over its rows, whose order stays."""
    columns = [Column("series", group=True), Column("rank", number=True), Column("position")]
    rows = [["training/a", "0", "3"], ["training/a", "1", "4"], ["b", "0", "5"]]
    assert table(columns, rows, Screen(width=20)) == (
        "  rank  position\ntraining/a\n     0  3\n     1  4\nb\n     0  5"
    )


def test_table_explains_long_titles_below() -> None:
    """Titles that are names become numbers, with a legend that has them whole."""
    columns = [Column("rank"), *(Column(f"series/{i}" * 3, True, legend=True) for i in "ab")]
    assert table(columns, [["0", "5", "1,000"]], Screen(width=40)) == (
        "rank  #1     #2\n"
        "0      5  1,000\n"
        "#1  series/aseries/aseries/a\n"
        "#2  series/bseries/bseries/b"
    )


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
