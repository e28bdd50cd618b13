"""`rankfold rules`: the rules in force, and what a series, a scalar or a key would match."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from rankfold.errors import InvalidRules
from rankfold.rules import DEFAULT_KEYS, KeyRule, Pattern, RuleSet
from rankfold_service.cli import options
from rankfold_service.cli.tables import Column, table
from rankfold_service.cli.text import Screen, visible

BUILT_IN = "built-in"

DESCRIPTION = """\
Prints which keys a series has and by which rule and field each is folded: the built-in ones, and
what the rules file adds, overrides or removes. For each NAME, prints what it would match: as a
series, as a scalar, and as a key.
"""

EPILOG = """\
A rules file is TOML. The most specific pattern wins: an exact name before a glob, and of globs the
one with more literal characters.

  [scalars]
  "actor/*" = "mean"

  [series."training/*"]
  mismatch_rate = { rule = "mean", field = "count" }
  diff_std = false

examples:
  rankfold rules
  rankfold rules --rules rules.toml training/rollout_logprobs actor/pg_loss/mean

exit codes: 0 done, 1 output that cannot be written, 2 wrong usage or a rules file that cannot be
used
"""


def add_parser(subparsers: options.Subparsers) -> None:
    """Add `rules` to the command line."""
    parser = options.new_parser(subparsers, "rules", run, DESCRIPTION, EPILOG)
    parser.add_argument(
        "--rules",
        type=Path,
        metavar="FILE",
        default=os.environ.get("RANKFOLD_RULES") or None,
        help="the rules file (RANKFOLD_RULES)",
    )
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        type=options.series_or_key,
        help="a series, a scalar or a key",
    )


def run(args: argparse.Namespace) -> int:
    """Print the rules, or what the given names match."""
    rules = load_rules(args.rules)
    screen = Screen.of(sys.stdout)
    if args.names:
        print("\n\n".join("\n".join(matches(rules, name, screen)) for name in args.names))
    else:
        print("\n\n".join(in_force(rules, screen)))
    return 0


def load_rules(path: Path | None) -> RuleSet:
    """Return the rules of a file, or the built-in ones where there is none.

    Raises:
        InvalidRules: the file cannot be read or used; the message names it.
    """
    if path is None:
        return RuleSet()
    try:
        return RuleSet.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRules(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidRules(f"{path}: not TOML in UTF-8: see byte {error.start}") from error
    except InvalidRules as error:
        raise InvalidRules(f"{path}: {error}") from error


def in_force(rules: RuleSet, screen: Screen) -> Iterator[str]:
    """Yield the table of series' keys and, where there are any, of scalars."""
    columns = [Column("series", group=True), Column("key"), Column("rule"), Column("field")]
    rows = [["*", f"<series>_{key.suffix}", key.rule, key.field] for key in DEFAULT_KEYS]
    for pattern in sorted(rules.series, key=_order):
        for suffix, key in rules.series[pattern].items():
            how = [key.rule, key.field] if key else ["removed", ""]
            rows.append([pattern.text, f"<series>_{suffix}", *how])
    yield table(columns, rows, screen)
    if rules.scalars:
        scalars = [
            [pattern.text, rules.scalars[pattern]] for pattern in sorted(rules.scalars, key=_order)
        ]
        yield table([Column("scalar"), Column("rule")], scalars, screen)


def matches(rules: RuleSet, name: str, screen: Screen) -> Iterator[str]:
    """Yield the lines on what a name would be as a series, a scalar and a key."""
    yield screen.heading(visible(name))
    yield "as a series it has the keys"
    columns = [Column("key"), Column("rule"), Column("field"), Column("pattern")]
    rows = [
        [f"{name}_{key.suffix}", key.rule, key.field, origin(rules, name, key.suffix)]
        for key in rules.keys_of(name)
    ]
    yield from (f"  {line}" for line in table(columns, rows, screen).splitlines())
    yield f"as a scalar {_as_scalar(rules, name)}"
    for series, key in owners(rules, name):
        where = origin(rules, series, key.suffix)
        yield visible(
            f"as a key of {series} its rule is {key.rule}, its field {key.field} ({where})"
        )


def _as_scalar(rules: RuleSet, name: str) -> str:
    matching = [pattern for pattern in rules.scalars if pattern.matches(name)]
    if not matching:
        return "it has no rule: a report has to give one"
    pattern = max(matching, key=lambda p: p.specificity)
    return f"its rule is {rules.scalars[pattern]} ({visible(pattern.text)})"


def owners(rules: RuleSet, name: str) -> Iterator[tuple[str, KeyRule]]:
    """Yield each series that would have a key of this name, with the key's rule."""
    for position, char in enumerate(name):
        series, suffix = name[:position], name[position + 1 :]
        if char == "_" and series:
            yield from ((series, key) for key in rules.keys_of(series) if key.suffix == suffix)


def origin(rules: RuleSet, series: str, suffix: str) -> str:
    """Return the pattern that decides about a key of a series."""
    deciding = [p for p, keys in rules.series.items() if p.matches(series) and suffix in keys]
    return max(deciding, key=lambda p: p.specificity).text if deciding else BUILT_IN


def _order(pattern: Pattern) -> tuple[tuple[bool, int], str]:
    return (pattern.specificity, pattern.text)
