"""Journal records: exact to the bit, and damage is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.wire import Report
from rankfold_service.store.record import DamagedRecord, Entry, pack, unpack_all
from support.reports import partial, report, reports


@given(reports(), st.floats(0, 2e9))
def test_record_returns_what_it_was_given(written: Report, now: float) -> None:
    """Every report comes back equal, NaN, infinities and nulls included."""
    (entry,) = unpack_all(pack(Entry("report", now, 16, written)))
    # repr tells 0.0 from -0.0 and equates NaN with NaN.
    assert repr(entry) == repr(Entry("report", now, 16, written))


@given(st.lists(reports(), max_size=4))
def test_records_come_back_in_order(written: list[Report]) -> None:
    """Joined records are taken apart again."""
    joined = b"".join(pack(Entry("report", 1.0, 16, each)) for each in written)
    assert repr([e.report for e in unpack_all(joined)]) == repr(written)


def test_record_keeps_odd_names_and_large_integers() -> None:
    """Names of any Unicode and integers up to 2^53-1 survive."""
    row = partial(series="\u00e9\u4e2d\U0001f600'\"", valid=2**53 - 1, count=1, max=1.0, sum=1.0)
    written = report(run="r\u2028", partials=[row], meta={"k": "v\u00fc"}, dropped=2**53 - 1)
    (entry,) = unpack_all(pack(Entry("finish", 2.5, 16, written)))
    assert entry == Entry("finish", 2.5, 16, written)


@given(st.data())
def test_record_with_a_flipped_bit_is_refused(data: st.DataObject) -> None:
    """No single flipped bit is believed."""
    record = bytearray(pack(Entry("report", 1.0, 16, report(partials=[partial()]))))
    position = data.draw(st.integers(0, len(record) - 1))
    record[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DamagedRecord):
        list(unpack_all(bytes(record)))


@given(st.data())
def test_record_that_is_cut_off_is_refused(data: st.DataObject) -> None:
    """A torn record is found."""
    record = pack(Entry("report", 1.0, 16, report(partials=[partial()])))
    length = data.draw(st.integers(1, len(record) - 1))
    with pytest.raises(DamagedRecord):
        list(unpack_all(record[:length]))
