"""How a value and a label are written in a scrape."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.utils import floatToGoString

from rankfold_service.gauges import FAMILIES
from rankfold_service.lines import count, document, escaped, run_lines, spelled
from unit.service.snapshots import compared, new_ledger, snapshot_of, tell


def number(value: float) -> str:
    """Return a value as it stands at the end of a line."""
    head, _, text = spelled(f"inf nan {value!r}\n").rpartition(" ")
    assert head == "inf nan"
    return text.removesuffix("\n")


@given(st.floats())
def test_number_keeps_every_bit_of_a_double(value: float) -> None:
    """What a reader parses is the double that was written; NaN stays NaN."""
    read = float(number(value))
    assert struct.pack("d", read) == struct.pack("d", value) or (
        math.isnan(read) and math.isnan(value)
    )


@given(st.floats())
def test_number_says_what_the_client_library_says(value: float) -> None:
    """Both spellings are of one double, and those of what is not finite are the same."""
    theirs = floatToGoString(value)
    assert float(theirs) == float(number(value)) or math.isnan(value)
    assert math.isfinite(value) or number(value) == theirs


@given(st.integers())
def test_number_writes_integers_exactly(value: int) -> None:
    """No digit of a count is lost on the way out."""
    assert number(value) == str(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (-0.0, "-0.0")],
)
def test_number_spells_what_is_no_plain_number(value: float, text: str) -> None:
    """What is not finite is spelled as the formats want it."""
    assert number(value) == text


@given(st.text() | st.text('\\"\nnab'))
def test_escaped_can_be_told_back(text: str) -> None:
    """Quotes and line breaks are hidden, and every text has its own escaped form."""
    written = escaped(text)
    assert "\n" not in written
    parts = written.split("\\\\")
    assert all(part.count('"') == part.count('\\"') for part in parts)
    back = "\\".join(part.replace('\\"', '"').replace("\\n", "\n") for part in parts)
    assert back == text


def test_families_need_no_escapes() -> None:
    """Names and meanings stand in both formats as they are, each on one line."""
    for family in FAMILIES:
        assert not set(family.help) & set('\\"\n')
        assert family.name.isidentifier()


def test_document_keeps_the_lines_of_a_family_together() -> None:
    """Both formats want every line of a family under its name, and count tells the gauges."""
    ledger = new_ledger()
    tell(ledger, compared(), commit=0)
    run = snapshot_of(ledger)
    runs = [run_lines(run), run_lines(run._replace(run="r2"))]
    written = document(runs)
    names = [line.split("{")[0] for line in written.decode().splitlines() if line[0] != "#"]
    assert list(dict.fromkeys(names)) == [f.name for f in FAMILIES if f.name in names]
    assert names == sorted(names, key=[f.name for f in FAMILIES].index)
    assert count(written) == len(names)
