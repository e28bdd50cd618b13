"""Which keys a series has, how values are read, and the rules file."""

from __future__ import annotations

import math

import pytest

from rankfold.errors import InvalidRules
from rankfold.exact import to_units
from rankfold.fold import Fold, Moments, Place, ScalarFold, Table
from rankfold.rules import (
    DEFAULT_KEYS,
    SERIES_FIELDS,
    KeyRule,
    Pattern,
    Rule,
    RuleSet,
    extras,
    read_scalar,
    read_series,
)

# Five positions, one of them not finite: differences 0, 0, 1 and 3.
FOLD = Fold(
    partials=2,
    valid=5,
    count=3,
    nonfinite=1,
    sum=to_units(4.0),
    max=3.0,
    min=1.0,
    moments=Moments(4, to_units(4.0), to_units(10.0)),
    ulp_max=7,
    total=9,
)
VALUES = {
    ("sum", "count"): 3,
    ("sum", "valid"): 5,
    ("sum", "nonfinite"): 1,
    ("sum", "sum"): 4.0,
    ("sum", "sum_sq"): 10.0,
    ("sum", "total"): 9,
    ("max", "max"): 3.0,
    ("max", "ulp_max"): 7,
    ("min", "max"): 1.0,
    ("mean", "sum"): 1.0,
    ("mean", "count"): 0.6,
    ("mean", "nonfinite"): 0.2,
    ("std", "sum"): math.sqrt(10 / 4 - 1),
}


@pytest.mark.parametrize(("rule", "field"), VALUES)
def test_series_value_is_read_by_its_rule(rule: str, field: str) -> None:
    """Every rule with every field that it can fold gives its number."""
    assert read_series(FOLD, Rule(rule), field) == VALUES[rule, field]


def test_every_field_that_a_rule_can_fold_is_read() -> None:
    """The list of what the rules file may ask for is the list of what can be read."""
    assert {(r, f) for r, fields in SERIES_FIELDS.items() for f in fields} == set(VALUES)


@pytest.mark.parametrize(("rule", "field"), VALUES)
def test_series_value_is_null_where_nothing_was_folded(rule: str, field: str) -> None:
    """Never 0 for what was never reported."""
    assert read_series(Fold(), Rule(rule), field) is None


def test_series_value_of_masked_microbatches_counts_but_has_no_mean() -> None:
    """A microbatch without a position is a count of 0 and neither maximum, mean nor deviation."""
    masked = Fold(partials=1, moments=Moments(0, 0, 0))
    values = {key.suffix: read_series(masked, key.rule, key.field) for key in DEFAULT_KEYS}
    assert values == {
        "mismatch_count": 0,
        "diff_max": None,
        "diff_mean": None,
        "valid_count": 0,
        "nonfinite_count": 0,
        "diff_std": None,
        "ulp_max": None,
    }


def test_counts_are_exact_beyond_doubles() -> None:
    """A sum of counts is an integer of any size."""
    huge = Fold(partials=3, valid=3 * (2**53 - 1), count=2**70 + 1)
    assert read_series(huge, Rule.SUM, "count") == 2**70 + 1


SCALARS = ScalarFold.of(3.0, 3, Place(0, 1, 0, 0)).merge(ScalarFold.of(-1.0, 1, Place(0, 2, 0, 0)))


@pytest.mark.parametrize(
    ("rule", "value"),
    [("sum", 2.0), ("max", 3.0), ("min", -1.0), ("mean", 2.0), ("last", -1.0)],
)
def test_scalar_value_is_read_by_its_rule(rule: str, value: float) -> None:
    """Sum, largest, smallest, weighted mean and latest."""
    assert read_scalar(SCALARS, Rule(rule)) == value


def test_scalar_value_is_null_where_nothing_finite_was_folded() -> None:
    """Neither NaN nor 0; a mean needs a weight too."""
    for rule in (Rule.SUM, Rule.MAX, Rule.MIN, Rule.MEAN, Rule.LAST):
        assert read_scalar(ScalarFold(nonfinite=2), rule) is None
    assert read_scalar(ScalarFold.of(1.0, 0, Place(0, 0, 0, 0)), Rule.MEAN) is None


def values_of(rules: RuleSet, fold: Fold) -> dict[str, float | int | None]:
    """Return every key of a series `s` that a fold has, with its value."""
    table = Table()
    table.add_series("s", fold)
    return {r.name: r.key(table).value for r in rules.readings("s", extras(fold))}


def test_series_has_the_contract_keys() -> None:
    """The built-in keys and values of a series, those of optional fields where reported."""
    assert values_of(RuleSet(), FOLD) == {
        "s_mismatch_count": 3,
        "s_diff_max": 3.0,
        "s_diff_mean": 1.0,
        "s_valid_count": 5,
        "s_nonfinite_count": 1,
        "s_diff_std": math.sqrt(1.5),
        "s_ulp_max": 7,
    }
    bare = FOLD._replace(moments=None, ulp_max=None, total=None)
    assert list(values_of(RuleSet(), bare)) == [f"s_{key.suffix}" for key in DEFAULT_KEYS[:5]]


FILE = """
[scalars]
"actor/*" = "mean"
"actor/grad*" = "max"
"actor/grad_norm" = "last"

[series."*"]
mismatch_rate = { rule = "mean", field = "count" }
diff_std = false
squares = { rule = "sum", field = "sum_sq" }
before_mask = { rule = "sum", field = "total" }

[series."training/*"]
diff_max = { rule = "min", field = "max" }
mismatch_rate = false
"""


@pytest.mark.parametrize(
    ("key", "rule"),
    [
        ("actor/loss", "mean"),
        ("actor/grad", "max"),
        ("actor/grad_norm", "last"),
        ("actor/grad_norm2", "max"),
        ("critic/loss", None),
        ("xactor/loss", None),
    ],
)
def test_scalar_rule_is_the_most_specific_match(key: str, rule: str | None) -> None:
    """An exact name before any glob, then the glob with more literal characters."""
    assert RuleSet.parse(FILE).scalar_rule(key) == rule


def test_series_keys_are_added_overridden_and_removed() -> None:
    """Patterns apply from the least specific on; `false` removes a key."""
    rules = RuleSet.parse(FILE)
    plain_keys = {key.suffix: (str(key.rule), key.field) for key in rules.keys_of("other")}
    assert plain_keys == {
        "mismatch_count": ("sum", "count"),
        "diff_max": ("max", "max"),
        "diff_mean": ("mean", "sum"),
        "valid_count": ("sum", "valid"),
        "nonfinite_count": ("sum", "nonfinite"),
        "ulp_max": ("max", "ulp_max"),
        "mismatch_rate": ("mean", "count"),
        "squares": ("sum", "sum_sq"),
        "before_mask": ("sum", "total"),
    }
    training = {key.suffix: key for key in rules.keys_of("training/x")}
    assert training["diff_max"] == KeyRule("diff_max", Rule.MIN, "max")
    assert training.keys() == plain_keys.keys() - {"mismatch_rate"}


def test_optional_keys_appear_only_where_their_field_was_reported() -> None:
    """A key over `sum_sq` or `total` is absent, not null, where nobody reported it."""
    rules = RuleSet.parse(FILE)
    bare = Fold(partials=1)
    assert values_of(rules, bare).keys().isdisjoint({"s_squares", "s_before_mask", "s_ulp_max"})
    reported = values_of(rules, FOLD)
    assert (reported["s_squares"], reported["s_before_mask"]) == (10.0, 9)


@pytest.mark.parametrize(
    ("glob", "name", "matches"),
    [
        ("a*", "a", True),
        ("a*", "a/b\nc", True),
        ("a?", "ab", True),
        ("a?", "a", False),
        ("a.b", "axb", False),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("a", "ab", False),
        ("b", "ab", False),
    ],
)
def test_glob_knows_two_wildcards_and_nothing_else(glob: str, name: str, matches: bool) -> None:
    """`*` is any characters, `?` is one, all else stands for itself, and the whole name counts."""
    assert Pattern(glob).matches(name) is matches


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("scalars = ", "not TOML"),
        ("[scalar]", r"unknown table \[scalar\]"),
        ("scalars = 3", "scalars must be a table, not 3"),
        ("series = []", r"series must be a table, not \[\]"),
        ('[scalars]\n"k" = "median"', "one of last, max, mean, min, sum, not 'median'"),
        ('[scalars]\n"k" = "std"', "not 'std'"),
        ('[scalars]\n"k" = ["mean"]', r"not \['mean'\]"),
        ('[scalars]\n"k" = { rule = "mean" }', "not {'rule': 'mean'}"),
        ('[scalars]\n"k" = 3', "not 3"),
        ('[series]\n"s" = true', 'series."s" must be a table, not True'),
        ('[series."s"]\nx = true', 'series."s".x must be a table, not True'),
        ('[series."s"]\nx = 0', "must be a table, not 0"),
        ('[series."s"]\nx = { rule = "sum" }', "needs exactly"),
        ('[series."s"]\nx = { rule = "sum", field = "sum", y = 1 }', "needs exactly"),
        ('[series."s"]\nx = { rule = "last", field = "sum" }', "not 'last'"),
        ('[series."s"]\nx = { rule = [], field = "sum" }', r"not \[\]"),
        ('[series."s"]\nx = { rule = "sum", field = "max" }', "sum folds one of count"),
        ('[series."s"]\nx = { rule = "sum", field = ["sum"] }', r"not \['sum'\]"),
    ],
)
def test_rules_file_with_a_fault_is_refused_by_name(text: str, words: str) -> None:
    """Start-up says what is wrong and where."""
    with pytest.raises(InvalidRules, match=words):
        RuleSet.parse(text)


def test_empty_rules_file_changes_nothing() -> None:
    """No file and an empty one are the same."""
    assert RuleSet.parse("") == RuleSet()
    assert RuleSet().keys_of("s") == list(DEFAULT_KEYS)
    assert RuleSet().scalar_rule("k") is None


def test_rules_refuse_an_ending_that_no_key_may_have() -> None:
    """An ending with a control character would make a key that nothing can show."""
    text = '[series."*"]\n"a\\nb" = { rule = "sum", field = "count" }'
    with pytest.raises(InvalidRules, match="control characters"):
        RuleSet.parse(text)
