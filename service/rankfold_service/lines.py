"""Writes the gauges of runs as lines of a scrape; they are the same in text and in OpenMetrics.

The client library takes ten times as long, for it makes an object and a dict for every line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from weakref import WeakValueDictionary

from rankfold_service.gauges import FAMILIES, Family, Gauge, Shape, plan, shape
from rankfold_service.judge import RunSnapshot

_SPELLED = {" inf\n": " +Inf\n", " -inf\n": " -Inf\n", " nan\n": " NaN\n"}
_ABSENT = re.compile(r"^.* None\n", re.MULTILINE)
# In a template, where a run's labels come, and the line between families: no name has these.
_LABELS, _NEXT_FAMILY = "\0", b"\1\n"
_HEADINGS = [f"# HELP {f.name} {f.help}\n# TYPE {f.name} gauge\n".encode() for f in FAMILIES]


class Lines(NamedTuple):
    """A run's lines.

    Attributes:
        families: those of each family, in the order of `FAMILIES`.
        gauges: how many there are, for a scrape counts millions of bytes in milliseconds only.
    """

    families: tuple[bytes, ...]
    gauges: int


def spelled(lines: str) -> str:
    """Return lines that end in Python's values as a scrape's: without those that have none."""
    # A line break ends a line and is nowhere else: in a label it is escaped.
    if "inf\n" in lines or "nan\n" in lines:
        for ours, theirs in _SPELLED.items():
            lines = lines.replace(ours, theirs)
    return _ABSENT.sub("", lines) if " None\n" in lines else lines


@lru_cache(maxsize=8192)
def escaped(text: str) -> str:
    """Return a label's value as it stands between quotes."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Template:
    """The lines of all runs of one shape, but for the run's labels and the values.

    Writing them is then one step for all lines of a run: a scrape writes tens of thousands.

    Args:
        shape: of the runs.
    """

    def __init__(self, shape: Shape) -> None:
        planned = plan(shape)
        families = [(family, [*family.gauges(planned)]) for family in FAMILIES]
        self._text = _NEXT_FAMILY.decode().join(_lines(*of) for of in families)
        self._reads = [read for _, gauges in families for _, read in gauges]

    def fill(self, run: RunSnapshot) -> Lines:
        """Return every gauge of a run: floats in their shortest form, integers exactly.

        Raises:
            UnicodeEncodeError: a name holds a lone surrogate; none that was accepted does.
        """
        values = tuple([read(run) for read in self._reads])
        labels = f'project="{escaped(run.project)}",run="{escaped(run.run)}"'
        lines = spelled(self._text % values).replace(_LABELS, labels)
        return Lines(tuple(lines.encode().split(_NEXT_FAMILY)), len(values) - values.count(None))


def _lines(family: Family, gauges: Iterable[Gauge]) -> str:
    """Return a family's lines for any values."""
    lines = []
    for at, _ in gauges:
        own = f',{family.label}="{escaped(at)}"' if family.label else ""
        lines.append(f"{family.name}{{{_LABELS}{own}}} ".replace("%", "%%") + "%r\n")
    return "".join(lines)


class Templates:
    """The templates that are in use, one for each shape."""

    def __init__(self) -> None:
        self._used: WeakValueDictionary[Shape, Template] = WeakValueDictionary()

    def of(self, run: RunSnapshot) -> Template:
        """Return the template of a run; it stays known for as long as somebody holds it."""
        its = shape(run)
        template = self._used.get(its)
        if template is None:
            template = self._used[its] = Template(its)
        return template


def document(runs: Iterable[Lines], rest: bytes) -> bytes:
    """Return the lines of all runs, each family's together under its name and meaning.

    Args:
        runs: in the order in which they are shown.
        rest: what comes after them; put here into the one copy that is made of it all.
    """
    columns = [*zip(*(run.families for run in runs), strict=True)] or [()] * len(FAMILIES)
    parts: list[bytes] = []
    for heading, lines in zip(_HEADINGS, columns, strict=True):
        parts.append(heading)
        parts += lines
    return b"".join([*parts, rest])
