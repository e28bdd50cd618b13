"""How a value and a label are written in a scrape."""

from __future__ import annotations

import math
import struct
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.utils import floatToGoString

from rankfold.rules import DEFAULT_KEYS, Rule, RuleSet
from rankfold_service.gauges import FAMILIES
from rankfold_service.lines import Templates, document, escaped, spelled
from support.gauges import lines_of
from unit.service.snapshots import compared, new_ledger, scalar, snapshot_of, tell


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
    """Both formats want every line of a family under its name, and each run knows its gauges."""
    ledger = new_ledger()
    tell(ledger, compared(), commit=0)
    run = snapshot_of(ledger)
    runs = [lines_of(run), lines_of(run._replace(run="r2"))]
    written = document(runs, b"rest 1\n")
    *gauges, rest = written.decode().splitlines()
    names = [line.split("{")[0] for line in gauges if line[0] != "#"]
    assert list(dict.fromkeys(names)) == [f.name for f in FAMILIES if f.name in names]
    assert names == sorted(names, key=[f.name for f in FAMILIES].index)
    assert [run.gauges for run in runs] == [len(names) // 2] * 2
    assert rest == "rest 1"


def test_runs_of_one_shape_share_a_template() -> None:
    """Values and the run's own names tell runs apart, not what their gauges are called."""
    rules = RuleSet()
    first, second, third = (new_ledger(run=name, rules=rules) for name in ("r1", "r2", "r3"))
    tell(first, compared(), commit=0)
    tell(second, compared(count=2, largest=0.5, sum_=0.75), commit=0)
    tell(third, compared(sum_sq=0.0), commit=0)
    templates = Templates()
    one, two, other = (templates.of(snapshot_of(ledger)) for ledger in (first, second, third))
    assert one is two
    assert one is not other
    for ledger in (first, second):
        assert one.fill(snapshot_of(ledger)) == lines_of(snapshot_of(ledger))


def test_a_template_that_nobody_holds_is_let_go() -> None:
    """However many shapes there were, memory has those of the runs that are shown."""
    templates = Templates()
    ledger = new_ledger()
    tell(ledger, compared(), commit=0)
    gone = weakref.ref(templates.of(snapshot_of(ledger)))
    assert gone() is None


@given(st.sampled_from(["%", "%%", "%r", "50%s", "} None", "a None", "nan", "inf", "\u2028"]))
def test_names_are_never_taken_for_what_a_template_has(name: str) -> None:
    """A name stands as it is, whatever it means to the one who fills the template in."""
    ledger = new_ledger(name, name)
    # One value is absent and one infinite, so that lines are looked at for those.
    loss = scalar(f"{name} ", math.inf, Rule.MEAN)
    tell(ledger, compared(series=name, valid=0, largest=None), loss, commit=0)
    written = document([lines_of(snapshot_of(ledger))], b"").decode()
    labels = f'project="{name}",run="{name}"'
    assert f'rankfold_valid_positions{{{labels},series="{name}"}} 0\n' in written
    assert f'rankfold_sum_value{{{labels},key="{name}_mismatch_count"}} 0\n' in written
    assert f'key="{name}_diff_mean"' not in written
    assert f'key="{name} "' not in written


def test_a_series_of_which_the_rules_leave_no_key_has_its_own_gauges() -> None:
    """What the rules say of keys takes no mismatch from the alert's gauges."""
    removed = "\n".join(f"{key.suffix} = false" for key in DEFAULT_KEYS)
    ledger = new_ledger(rules=RuleSet.parse(f'[series."*"]\n{removed}'))
    tell(ledger, compared(count=1, largest=0.5, sum_=0.5), commit=0)
    written = document([lines_of(snapshot_of(ledger))], b"").decode()
    assert 'rankfold_mismatch_positions{project="default",run="r1",series="' in written
    assert "key=" not in written
