"""Journal records: exact to the bit, and damage is found."""

from __future__ import annotations

from base64 import b85decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.partial import Worst
from rankfold.wire import Report
from rankfold_service.store.record import DamagedRecord, Entry, pack, unpack_all
from support.reports import partial, report, reports

# A record as it was written while each integer had eight bytes, and worst tokens were JSON.
WIDE_RECORD = b85decode(
    r"%mDxZwZQv8_y7O^0ssI20RR91dm?XeB03^+WpHnDbRsMwZf|!YIx#LaEFx=VWpE-oF*YnBaB^>IWn*+AIwE9cW?^+~"
    r"bRsMwa&>MZIwEo+EFyAYZfhbsGb|!wZ*6U9baNs)TU#(JH!v_TF<o6OB5q-AWpg4rTOxFFVQFq@Zf7rYZ)|LDb#z~B"
    r"Z)b3FZ(?&IEFx<nT`VGRaCB*JZeeU9I$I)iZ**a7B3&#Zb9HTBb8#X%baHiNEFyPra&vSdI$K*XEL$-wGAu1IE-)-D"
    r"F)lSMIV^5<Y-}tdb0S?`T`VGUb!=sGB05_lZDnC@B3&#ZXKZg`VQeBgTV`Qwb7ft90000000000000000000000000"
    r"0000000000000000000000000a1j9j000000ssI2000000000000000ECB!j000000000000961000000000000000"
    r"00000kO2Sy00000|NsC0|NsC0jqSCd_r|b30000000000jqSCd_r}0J00000000005$Y|0nU`@r00000008)Z0RR91"
    r"00000000000000000000000000RR910000000000008)Z"
)


@given(reports(), st.floats(0, 2e9))
def test_record_returns_what_it_was_given(written: Report, now: float) -> None:
    """Every report comes back equal, NaN, infinities and nulls included."""
    (entry,) = unpack_all(pack(Entry("report", now, 16, written)))
    # repr tells 0.0 from -0.0 and equates NaN with NaN.
    assert repr(entry) == repr(Entry("report", now, 16, written))


@given(st.lists(reports(), min_size=1, max_size=4))
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


def test_record_of_before_is_read() -> None:
    """What an older aggregator left in its journal is not lost."""
    worst = Worst((1, 2), -1.0, -1.5, 9, None, "s")
    details = {"total": 400, "sum_sq": 1e-12, "worst": worst}
    written = report(
        run="r",
        rank=3,
        partials=[
            partial(count=2, valid=300, max=1e-6, sum=2e-6, **details),
            partial(microbatch=70_000, valid=2**40),
        ],
        scalars=[{"key": "k", "value": "NaN"}],
        commits=[{"iteration": 0, "microbatches": 70_001}],
    )
    (entry,) = unpack_all(WIDE_RECORD)
    assert repr(entry) == repr(Entry("report", 1.5, 16, written))


@pytest.mark.parametrize("largest", [0, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**53 - 1])
def test_record_keeps_integers_of_every_width(largest: int) -> None:
    """At each border between widths a column has both sides of it."""
    rows = [partial(valid=valid, microbatch=i) for i, valid in enumerate((1, largest or 1))]
    (entry,) = unpack_all(pack(Entry("report", 1.0, 16, report(partials=rows))))
    assert entry.report == report(partials=rows)


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


@pytest.mark.parametrize("size", [0, 1, 8, 100])
def test_zeros_are_no_records(size: int) -> None:
    """What a disk that fails may give back is found."""
    with pytest.raises(DamagedRecord):
        list(unpack_all(bytes(size)))
