"""`rankfold rules` prints the rules in force and what a name matches."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankfold.errors import InvalidRules
from rankfold.rules import RuleSet
from rankfold_service.cli.main import main
from rankfold_service.cli.rules import load_rules

FILE = """\
[scalars]
"actor/*" = "mean"
"actor/steps" = "sum"

[series."training/*"]
mismatch_rate = { rule = "mean", field = "count" }
diff_std = false

[series."training/rollout_logprobs"]
mismatch_count = { rule = "mean", field = "count" }
"""

BUILT_IN = """\
series  key                       rule  field
*       <series>_mismatch_count   sum   count
*       <series>_diff_max         max   max
*       <series>_diff_mean        mean  sum
*       <series>_valid_count      sum   valid
*       <series>_nonfinite_count  sum   nonfinite
*       <series>_diff_std         std   sum
*       <series>_ulp_max          max   ulp_max
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A rules file that adds, overrides and removes."""
    path = tmp_path / "rules.toml"
    path.write_text(FILE)
    return path


def test_rules_prints_the_built_in_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a file the keys of every series are those of the contract."""
    assert main(["rules"]) == 0
    assert capsys.readouterr().out == BUILT_IN


def test_rules_prints_what_a_file_changes(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later lines override earlier ones: patterns stand by how specific they are."""
    monkeypatch.setenv("RANKFOLD_RULES", str(file))
    assert main(["rules"]) == 0
    assert capsys.readouterr().out == (
        "series                     key                       rule     field\n"
        "*                          <series>_mismatch_count   sum      count\n"
        "*                          <series>_diff_max         max      max\n"
        "*                          <series>_diff_mean        mean     sum\n"
        "*                          <series>_valid_count      sum      valid\n"
        "*                          <series>_nonfinite_count  sum      nonfinite\n"
        "*                          <series>_diff_std         std      sum\n"
        "*                          <series>_ulp_max          max      ulp_max\n"
        "training/*                 <series>_mismatch_rate    mean     count\n"
        "training/*                 <series>_diff_std         removed\n"
        "training/rollout_logprobs  <series>_mismatch_count   mean     count\n"
        "\n"
        "scalar       rule\n"
        "actor/*      mean\n"
        "actor/steps  sum\n"
    )


def test_rules_prints_what_a_series_matches(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each key comes with its rule, its field and the pattern that decided."""
    assert main(["rules", "--rules", str(file), "training/rollout_logprobs"]) == 0
    assert capsys.readouterr().out == (
        "training/rollout_logprobs\n"
        "as a series it has the keys\n"
        "  key                                        rule  field      pattern\n"
        "  training/rollout_logprobs_mismatch_count   mean  count      training/rollout_logprobs\n"
        "  training/rollout_logprobs_diff_max         max   max        built-in\n"
        "  training/rollout_logprobs_diff_mean        mean  sum        built-in\n"
        "  training/rollout_logprobs_valid_count      sum   valid      built-in\n"
        "  training/rollout_logprobs_nonfinite_count  sum   nonfinite  built-in\n"
        "  training/rollout_logprobs_ulp_max          max   ulp_max    built-in\n"
        "  training/rollout_logprobs_mismatch_rate    mean  count      training/*\n"
        "as a scalar it has no rule: a report has to give one\n"
    )


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("actor/pg_loss/mean", "as a scalar its rule is mean (actor/*)"),
        ("actor/steps", "as a scalar its rule is sum (actor/steps)"),
        ("s_diff_max", "as a key of s its rule is max, its field max (built-in)"),
        (
            "training/a_b_mismatch_rate",
            "as a key of training/a_b its rule is mean, its field count (training/*)",
        ),
        ("training/s_diff_std", "as a scalar it has no rule: a report has to give one"),
    ],
)
def test_rules_prints_what_a_scalar_or_a_key_matches(
    file: Path, capsys: pytest.CaptureFixture[str], name: str, last: str
) -> None:
    """The most specific pattern wins, and a removed key is the key of nothing."""
    assert main(["rules", "--rules", str(file), name]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_rules_prints_several_names_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Each name has a paragraph of its own."""
    assert main(["rules", "a", "b"]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert (first.splitlines()[0], second.splitlines()[0]) == ("a", "b")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[series", "not TOML"),
        (b"[scalars]\na = 'median'", "the rule must be one of"),
        (b"# gr\xfcn", "not TOML in UTF-8: see byte 4"),
    ],
)
def test_rules_names_the_file_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, complaint: str
) -> None:
    """A wrong file is a line that says which file and what is wrong, and exit 2."""
    path = tmp_path / "rules.toml"
    path.write_bytes(content)
    assert main(["rules", "--rules", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"rankfold rules: {path}: ")
    assert complaint in error
    assert error.count("\n") == 1


def test_rules_says_that_a_file_cannot_be_read(tmp_path: Path) -> None:
    """A file that is not there is not taken for an empty one."""
    path = tmp_path / "none.toml"
    with pytest.raises(InvalidRules, match=r"none\.toml cannot be read: No such file"):
        load_rules(path)


def test_load_rules_without_a_file_gives_the_built_in_ones() -> None:
    """No file means no change."""
    assert load_rules(None) == RuleSet()
