"""Which tensors of two dumps belong together, and under which mask; nothing is left out unsaid."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from rankfold.facts import MAX_NAMES
from rankfold_client.dumps.entries import Dump, DumpError, Entry, Index, Kind

SHOWN = 10
_MASK = re.compile(r"(^|[/_-])masks?$", re.IGNORECASE)


class Source(NamedTuple):
    """An entry and the dump that it is in."""

    dump: Dump
    entry: Entry


class Side(NamedTuple):
    """What one dump has of a series."""

    dump: Dump
    entries: dict[Index, Entry]

    def source(self, index: Index) -> Source:
        """Return one of them."""
        return Source(self.dump, self.entries[index])


class Pair(NamedTuple):
    """Two tensors to compare; of several masks, or several token ids, all must say the same."""

    series: str
    at: Index
    a: Source
    b: Source
    masks: list[Source]
    token_ids: list[Source]


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user said of names.

    Attributes:
        a_key: the tensor of A; None where it is to be found.
        b_key: likewise of B.
        series: only these names; empty for all.
        mask: the mask's name; None where it is to be found.
        mask_dump: the only dump in which a mask is looked for.
        unmasked: every position counts.
        token_ids: the name of the integers that say which token is where; None for none.
    """

    a_key: str | None = None
    b_key: str | None = None
    series: tuple[str, ...] = ()
    mask: str | None = None
    mask_dump: Dump | None = None
    unmasked: bool = False
    token_ids: str | None = None

    @property
    def names_tensors(self) -> bool:
        """Whether what is compared was said, so that all else was meant to be left out."""
        return bool(self.series) or self.a_key is not None or self.b_key is not None


@dataclass(slots=True)
class Plan:
    """What is compared.

    Attributes:
        series: what is judged, also where one file lacks it.
        pairs: what can be compared of them.
        commits: by iteration, how many microbatches there should be.
        notes: what the user should know, in words.
    """

    series: list[str] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    commits: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def plan(a: Dump, b: Dump, wish: Wish) -> Plan:
    """Return what is compared of two dumps.

    Raises:
        DumpError: there is nothing to compare, or more than one way to do it.
    """
    made = Plan()
    mask = _mask_name(a, b, wish, made.notes)
    elsewhere = wish.mask_dump is not None and wish.mask_dump.path not in (a.path, b.path)
    own_mask = None if elsewhere else mask
    _check_token_ids(a, b, wish.token_ids)
    aside = {own_mask, wish.token_ids}
    names = _names(a, b, wish, aside)
    if len(names) > MAX_NAMES:
        raise DumpError(
            f"{len(names)} names are more than the {MAX_NAMES} series that a run may have: "
            "name some with --series, or dump lists of tensors"
        )
    for series, of_a, of_b in names:
        if of_a == of_b and len(_distinct(a, b)) == 1:
            raise DumpError(
                f"{of_a!r} of {a.path} would be compared with itself: name another file, or two of "
                "its tensors with --a-key and --b-key"
            )
        if of_a != of_b:
            made.notes.append(f"{of_a!r} of {a.path} is compared with {of_b!r} of {b.path}")
        _add(made, series, Side(a, a.series.get(of_a, {})), Side(b, b.series.get(of_b, {})))
    made.notes += _roundings(made.pairs)
    if mask is not None:
        holders = [wish.mask_dump] if wish.mask_dump else _distinct(a, b)
        made.pairs = [pair._replace(masks=_beside(holders, mask, pair)) for pair in made.pairs]
    if wish.token_ids is not None:
        made.pairs = [
            pair._replace(token_ids=_beside(_distinct(a, b), wish.token_ids, pair))
            for pair in made.pairs
        ]
    if not wish.names_tensors:
        taken = {name for row in names for name in row[1:]} | aside
        made.notes += filter(None, (_left_out(dump, taken) for dump in _distinct(a, b)))
    return made


def _mask_name(a: Dump, b: Dump, wish: Wish, notes: list[str]) -> str | None:
    """Return the name of the mask that was given or is the only one."""
    if wish.unmasked:
        return None
    dumps = [wish.mask_dump] if wish.mask_dump else _distinct(a, b)
    known = {name for dump in dumps for name in dump.series}
    if wish.mask is not None:
        if wish.mask not in known:
            raise DumpError(f"no mask {wish.mask!r}: {_holdings(dumps)}")
        return wish.mask
    if wish.mask_dump is not None and len(known) == 1:
        return known.pop()
    masks = sorted(filter(_MASK.search, known))
    if len(masks) > 1 or (wish.mask_dump is not None and not masks):
        raise DumpError(
            f"which mask is meant? Name it with --mask, or give --no-mask: {_holdings(dumps)}"
        )
    if not masks:
        return None
    holders = " and ".join(str(dump.path) for dump in dumps if masks[0] in dump.series)
    notes.append(f"only positions under {masks[0]!r} of {holders} count; --no-mask counts all")
    return masks[0]


def _check_token_ids(a: Dump, b: Dump, name: str | None) -> None:
    if name is not None and name not in a.series and name not in b.series:
        raise DumpError(f"no token ids {name!r}: {_holdings(_distinct(a, b))}")


def _names(a: Dump, b: Dump, wish: Wish, aside: Set[str | None]) -> list[tuple[str, str, str]]:
    """Return of each comparison what it is called, and the names of the tensors in A and B."""
    of_a, of_b = _candidates(a, aside), _candidates(b, aside)
    if wish.a_key is not None or wish.b_key is not None:
        left = _named(a, wish.a_key, "--a-key", of_a, wish.b_key)
        return [(left, left, _named(b, wish.b_key, "--b-key", of_b, wish.a_key))]
    if wish.series:
        for name in wish.series:
            if name not in a.series and name not in b.series:
                raise DumpError(f"no tensor {name!r}: {_holdings(_distinct(a, b))}")
        return [(name, name, name) for name in dict.fromkeys(wish.series)]
    for dump, found in ((a, of_a), (b, of_b)):
        if not found:
            raise DumpError(f"no float tensor to compare: {_holdings([dump])}")
    if len(of_a) == len(of_b) == 1:
        return [(of_a[0], of_a[0], of_b[0])]
    if not set(of_a) & set(of_b):
        raise DumpError(
            f"no name is in both, so name what belongs together with --a-key and --b-key: "
            f"{_holdings([a, b])}"
        )
    return [(name, name, name) for name in dict.fromkeys([*of_a, *of_b])]


def _candidates(dump: Dump, aside: Set[str | None]) -> list[str]:
    """Return the names of what may be log-probs."""
    return [
        name
        for name, entries in dump.series.items()
        if name not in aside
        and not _MASK.search(name)
        and any(entry.kind is not Kind.OTHER for entry in entries.values())
    ]


def _named(dump: Dump, key: str | None, option: str, found: list[str], other: str | None) -> str:
    """Return the name that was given for a dump, or the only one that it can be."""
    if key is not None:
        if key not in dump.series:
            raise DumpError(f"no tensor {key!r}: {_holdings([dump])}")
        return key
    if other in found:
        return str(other)
    if len(found) != 1:
        raise DumpError(f"which tensor is meant? Name it with {option}: {_holdings([dump])}")
    return found[0]


def _add(made: Plan, series: str, a: Side, b: Side) -> None:
    """Add what both dumps have of a series, and say what only one has."""
    for side in (a, b):
        for index, entry in side.entries.items():
            if entry.kind is not Kind.FLOAT:
                raise DumpError(
                    f"{side.dump.path}: {series!r}{where(index)} cannot be compared: it is "
                    f"{entry.what}; --series NAME compares only what it names"
                )
    for one, other in ((a, b), (b, a)):
        only = sorted(one.entries.keys() - other.entries.keys())
        if only:
            some = _listed(f"{series!r}{where(index)}" for index in only)
            made.notes.append(f"only in {one.dump.path}: {some}")
    for index in sorted(a.entries.keys() & b.entries.keys()):
        made.pairs.append(Pair(series, index, a.source(index), b.source(index), [], []))
    commits: dict[int, int] = {}
    for iteration, microbatch in a.entries.keys() | b.entries.keys():
        commits[iteration] = max(commits.get(iteration, 0), microbatch + 1)
    if made.series and commits != made.commits:
        raise DumpError(
            f"{made.series[0]!r} and {series!r} are in lists of different lengths, of which none "
            "says how long it should be: compare them one by one with --series"
        )
    made.commits = commits
    made.series.append(series)


def _roundings(pairs: Iterable[Pair]) -> Iterator[str]:
    """Yield, of each series and two dtypes, that one is the other's rounded, if nothing else."""
    told = set()
    for pair in pairs:
        a, b = pair.a.entry.what, pair.b.entry.what
        if a != b and (pair.series, a, b) not in told:
            told.add((pair.series, a, b))
            yield (
                f"{pair.series!r} is {a} in A and {b} in B: values that one of them was rounded "
                "to differ from those that were not"
            )


def _beside(dumps: Sequence[Dump], name: str, pair: Pair) -> list[Source]:
    """Return what dumps have under a name for a pair."""
    known = [(dump, dump.series.get(name, {}).get(pair.at)) for dump in dumps]
    found = [Source(dump, entry) for dump, entry in known if entry is not None]
    if not found:
        raise DumpError(f"{name!r} has none for {pair.series!r}{where(pair.at)}")
    return found


def _left_out(dump: Dump, taken: Iterable[str | None]) -> str:
    """Say what a dump has that nobody compares."""
    rest = {name: entries for name, entries in dump.series.items() if name not in taken}
    return f"left out of {dump.path}: {_described(rest)}" if rest else ""


def _holdings(dumps: Sequence[Dump]) -> str:
    return "; ".join(f"{dump.path} has {_described(dump.series)}" for dump in dumps)


def _described(series: dict[str, dict[Index, Entry]]) -> str:
    words = (f"{name!r} ({next(iter(each.values())).what})" for name, each in series.items())
    return _listed(words) or "nothing"


def _listed(words: Iterable[str]) -> str:
    known = list(words)
    more = len(known) - SHOWN
    return ", ".join(known[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def where(index: Index) -> str:
    """Say where in lists a tensor is, or "" where that is nowhere else than the first place."""
    return "" if index == Index() else f" of iteration {index.iteration}, microbatch {index[1]}"


def _distinct(a: Dump, b: Dump) -> list[Dump]:
    return [a] if a is b else [a, b]
