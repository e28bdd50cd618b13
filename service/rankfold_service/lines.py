"""Writes the gauges of runs as lines of a scrape; they are the same in text and in OpenMetrics.

The client library takes ten times as long, for it makes an object and a dict for every line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from weakref import WeakValueDictionary

from rankfold_service.gauges import FAMILIES, Family, Gauge, Shape, plan, shape
from rankfold_service.judge import RunSnapshot

# A run's lines, by family in the order of `FAMILIES`.
Lines = tuple[bytes, ...]

_SPELLED = {" inf\n": " +Inf\n", " -inf\n": " -Inf\n", " nan\n": " NaN\n"}
_ABSENT = re.compile(r"^.* None\n", re.MULTILINE)
# In a template, where a run's labels come, and the line between families: no name has these.
_LABELS, _NEXT_FAMILY = "\0", b"\1\n"


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
        text = self._text % tuple([read(run) for read in self._reads])
        labels = f'project="{escaped(run.project)}",run="{escaped(run.run)}"'
        return tuple(spelled(text).replace(_LABELS, labels).encode().split(_NEXT_FAMILY))


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


def document(runs: Iterable[Lines]) -> bytes:
    """Return the lines of all runs, each family's together under its name and meaning."""
    return b"".join(_document(list(runs)))


def _document(runs: list[Lines]) -> Iterator[bytes]:
    for index, family in enumerate(FAMILIES):
        yield f"# HELP {family.name} {family.help}\n# TYPE {family.name} gauge\n".encode()
        for lines in runs:
            yield lines[index]


def count(written: bytes) -> int:
    """Return how many gauges a document has."""
    return written.count(b"\n") - 2 * len(FAMILIES)
