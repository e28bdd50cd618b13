"""Writes the gauges of runs as lines of a scrape; they are the same in text and in OpenMetrics.

The client library takes ten times as long, for it makes an object and a dict for every line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from rankfold_service.gauges import FAMILIES, Family, Sample, figures
from rankfold_service.judge import RunSnapshot

# A run's lines, by family in the order of `FAMILIES`.
Lines = tuple[bytes, ...]

_SPELLED = {" inf\n": " +Inf\n", " -inf\n": " -Inf\n", " nan\n": " NaN\n"}


def spelled(lines: str) -> str:
    """Return lines that end in Python's numbers with those that are not finite as a scrape's."""
    if "inf\n" in lines or "nan\n" in lines:
        # A line break ends a line and is nowhere else: in a label it is escaped.
        for ours, theirs in _SPELLED.items():
            lines = lines.replace(ours, theirs)
    return lines


@lru_cache(maxsize=8192)
def escaped(text: str) -> str:
    """Return a label's value as it stands between quotes."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def run_lines(run: RunSnapshot) -> Lines:
    """Return every gauge of a run.

    Raises:
        UnicodeEncodeError: a name holds a lone surrogate; none that was accepted does.
    """
    labels = f'{{project="{escaped(run.project)}",run="{escaped(run.run)}"'
    read = figures(run)
    return tuple([_lines(family, labels, family.read(read)) for family in FAMILIES])


def _lines(family: Family, labels: str, samples: Iterable[Sample]) -> bytes:
    """Return a family's lines: floats in their shortest form, integers exactly."""
    start = f"{family.name}{labels}"
    if family.label:
        start = f'{start},{family.label}="'
        lines = [f'{start}{escaped(at)}"}} {v!r}\n' for at, v in samples if v is not None]
    else:
        lines = [f"{start}}} {v!r}\n" for _, v in samples if v is not None]
    return spelled("".join(lines)).encode()


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
