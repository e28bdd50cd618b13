"""Which keys a series has, by which rule each is folded, and how its value is read."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

from rankfold.errors import InvalidRules
from rankfold.exact import deviation, from_units, mean
from rankfold.fold import Fold, ScalarFold, Table
from rankfold.names import name_fault


class Rule(StrEnum):
    """How partials or scalars fold into a value."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    MEAN = "mean"
    LAST = "last"
    STD = "std"  # only of a series, from its moments


# Of how many series, and scalars, it is remembered how they are read.
KEPT_READINGS = 4096

SCALAR_RULES = frozenset({Rule.SUM, Rule.MAX, Rule.MIN, Rule.MEAN, Rule.LAST})


class KeyRule(NamedTuple):
    """One key of a series: its name's ending, its rule and the partials' field."""

    suffix: str
    rule: Rule
    field: str


class Extras(NamedTuple):
    """Which of a fold's optional fields were reported."""

    moments: bool
    ulp_max: bool
    total: bool


_extras: Callable[[tuple[Any, ...]], Extras] = partial(tuple.__new__, Extras)


def extras(fold: Fold) -> Extras:
    """Return which optional fields a fold has."""
    return _extras((fold.moments is not None, fold.ulp_max is not None, fold.total is not None))


class Key(NamedTuple):
    """A key with what it was folded from; `series` is None for a scalar."""

    name: str
    rule: Rule
    value: float | int | None
    series: str | None
    fold: Fold | ScalarFold


@dataclass(frozen=True, slots=True, eq=False)  # told apart by identity, which is fast
class Reading:
    """How a key is read out of a table that has it.

    Attributes:
        name: of the key.
        rule: by which it is folded.
        series: of which it is, or None for a scalar.
        read: returns the value that a fold has, None where nothing was folded.
    """

    name: str
    rule: Rule
    series: str | None
    read: Callable[[Any], float | int | None]

    def key(self, table: Table) -> Key:
        """Return the key as a table has it."""
        fold = table.scalars[self.name] if self.series is None else table.series[self.series]
        return Key(self.name, self.rule, self.read(fold), self.series, fold)


DEFAULT_KEYS = (
    KeyRule("mismatch_count", Rule.SUM, "count"),
    KeyRule("diff_max", Rule.MAX, "max"),
    KeyRule("diff_mean", Rule.MEAN, "sum"),
    KeyRule("valid_count", Rule.SUM, "valid"),
    KeyRule("nonfinite_count", Rule.SUM, "nonfinite"),
    KeyRule("diff_std", Rule.STD, "sum"),
    KeyRule("ulp_max", Rule.MAX, "ulp_max"),
)


def _deviation(fold: Fold) -> float | None:
    moments = fold.moments
    if moments is None or moments.positions == 0:
        return None
    return deviation(moments.sum, moments.sum_sq, moments.positions)


# What each rule can read of a fold, by the partials' field that it folds. A mean of `sum` is
# divided by the finite positions; one of counts by the valid ones: the share that mismatches.
_READERS: Mapping[tuple[Rule, str], Callable[[Fold], float | int | None]] = {
    (Rule.SUM, "count"): lambda fold: fold.count if fold.partials else None,
    (Rule.SUM, "valid"): lambda fold: fold.valid if fold.partials else None,
    (Rule.SUM, "nonfinite"): lambda fold: fold.nonfinite if fold.partials else None,
    (Rule.SUM, "sum"): lambda fold: from_units(fold.sum) if fold.partials else None,
    (Rule.SUM, "sum_sq"): lambda fold: from_units(fold.moments.sum_sq) if fold.moments else None,
    (Rule.SUM, "total"): lambda fold: fold.total,
    (Rule.MAX, "max"): lambda fold: fold.max,
    (Rule.MAX, "ulp_max"): lambda fold: fold.ulp_max,
    (Rule.MIN, "max"): lambda fold: fold.min,
    (Rule.MEAN, "sum"): lambda fold: mean(fold.sum, fold.finite) if fold.finite else None,
    (Rule.MEAN, "count"): lambda fold: fold.count / fold.valid if fold.valid else None,
    (Rule.MEAN, "nonfinite"): lambda fold: fold.nonfinite / fold.valid if fold.valid else None,
    (Rule.STD, "sum"): _deviation,
}

# The part of a fold without which such a key does not exist: its field is optional.
_NEEDS: Mapping[tuple[Rule, str], str] = {
    (Rule.SUM, "sum_sq"): "moments",
    (Rule.SUM, "total"): "total",
    (Rule.MAX, "ulp_max"): "ulp_max",
    (Rule.STD, "sum"): "moments",
}

SERIES_FIELDS: Mapping[Rule, frozenset[str]] = {
    rule: frozenset(field for of, field in _READERS if of is rule)
    for rule in dict.fromkeys(rule for rule, _ in _READERS)
}


def read_series(fold: Fold, rule: Rule, field_: str) -> float | int | None:
    """Return what a rule reads out of a series' fold; None where nothing was folded."""
    return _READERS[rule, field_](fold)


def read_scalar(fold: ScalarFold, rule: Rule) -> float | None:
    """Return what a rule reads out of a scalar's fold; None where nothing was folded."""
    if fold.last is None:
        return None
    match rule:
        case Rule.SUM:
            return from_units(fold.sum)
        case Rule.MAX:
            return fold.max
        case Rule.MIN:
            return fold.min
        case Rule.LAST:
            return fold.last[1]
        case _:
            return mean(fold.weighted, fold.weight) if fold.weight else None


@lru_cache(maxsize=KEPT_READINGS)
def scalar_reading(key: str, rule: Rule) -> Reading:
    """Return how a scalar key is read."""
    return Reading(key, rule, None, partial(read_scalar, rule=rule))


@dataclass(frozen=True)
class Pattern:
    """An exact name or a glob (`*` any characters, `?` one).

    The more literal one wins, and of two that are as literal the later one in the file.
    """

    text: str

    @property
    def specificity(self) -> tuple[bool, int]:
        """Order patterns: exact names first, then by the number of literal characters."""
        literal = sum(char not in "*?" for char in self.text)
        return (literal == len(self.text), literal)

    def matches(self, name: str) -> bool:
        """Whether the whole name fits."""
        return _compile(self.text).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _compile(glob: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(c, re.escape(c)) for c in glob), re.DOTALL)


@dataclass(frozen=True)
class RuleSet:
    """The rules in force: the built-in keys of every series, and what a rules file changes.

    Attributes:
        series: by pattern, the keys to add or override; None removes a built-in one.
        scalars: by pattern, the rule of a scalar that was reported without one.
    """

    series: Mapping[Pattern, Mapping[str, KeyRule | None]] = field(default_factory=dict)
    scalars: Mapping[Pattern, Rule] = field(default_factory=dict)

    def keys_of(self, series: str) -> list[KeyRule]:
        """Return the keys of a series, built-in ones first."""
        matching = [p for p in self.series if p.matches(series)]
        if not matching:
            return list(DEFAULT_KEYS)
        keys: dict[str, KeyRule | None] = {key.suffix: key for key in DEFAULT_KEYS}
        for pattern in sorted(matching, key=lambda p: p.specificity):
            keys.update(self.series[pattern])
        return [key for key in keys.values() if key is not None]

    def scalar_rule(self, key: str) -> Rule | None:
        """Return the rule of a scalar key, or None where no pattern matches."""
        matching = [p for p in self.scalars if p.matches(key)]
        if not matching:
            return None
        return self.scalars[sorted(matching, key=lambda p: p.specificity)[-1]]

    @cached_property
    def readings(self) -> Callable[[str, Extras], tuple[Reading, ...]]:
        """Return how the keys of a series are read out of folds that have some optional fields.

        Remembers what it was asked for.
        """

        def readings(series: str, reported: Extras) -> tuple[Reading, ...]:
            return tuple(
                Reading(f"{series}_{suffix}", rule, series, _READERS[rule, field])
                for suffix, rule, field in self.keys_of(series)
                if (rule, field) not in _NEEDS or getattr(reported, _NEEDS[rule, field])
            )

        return lru_cache(maxsize=KEPT_READINGS)(readings)

    @classmethod
    def parse(cls, text: str) -> RuleSet:
        """Return the rules of a TOML document.

        ```toml
        [scalars]
        "actor/*" = "mean"

        [series."training/*"]
        mismatch_rate = { rule = "mean", field = "count" }
        diff_std = false
        ```

        Raises:
            InvalidRules: it is not TOML, or a table, rule or field is not known.
        """
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidRules(f"not TOML: {error}") from error
        unknown = set(document) - {"series", "scalars"}
        if unknown:
            raise InvalidRules(f"unknown table [{min(unknown)}]; there are [series] and [scalars]")
        return cls(
            series={
                Pattern(glob): {
                    suffix: _parse_key(glob, suffix, entry)
                    for suffix, entry in _table(f'series."{glob}"', keys).items()
                }
                for glob, keys in _table("series", document.get("series", {})).items()
            },
            scalars={
                Pattern(glob): _parse_rule(f'scalars."{glob}"', rule, SCALAR_RULES)
                for glob, rule in _table("scalars", document.get("scalars", {})).items()
            },
        )


def _table(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRules(f"{where} must be a table, not {value!r}")
    return value


def _parse_rule(where: str, value: Any, allowed: frozenset[Rule]) -> Rule:
    if not isinstance(value, str) or value not in allowed:
        choice = ", ".join(sorted(allowed))
        raise InvalidRules(f"{where}: the rule must be one of {choice}, not {value!r}")
    return Rule(value)


def _parse_key(glob: str, suffix: str, entry: Any) -> KeyRule | None:
    where = f'series."{glob}".{suffix}'
    if fault := name_fault(suffix):
        raise InvalidRules(f"{where}: the key's ending {fault}")
    if entry is False:
        return None
    entry = _table(where, entry)
    if set(entry) != {"rule", "field"}:
        raise InvalidRules(f'{where} needs exactly {{ rule = "...", field = "..." }}, or false')
    rule = _parse_rule(where, entry["rule"], frozenset(SERIES_FIELDS))
    fields = SERIES_FIELDS[rule]
    if not isinstance(entry["field"], str) or entry["field"] not in fields:
        choice = ", ".join(sorted(fields))
        raise InvalidRules(f"{where}: {rule} folds one of {choice}, not {entry['field']!r}")
    return KeyRule(suffix, rule, entry["field"])
