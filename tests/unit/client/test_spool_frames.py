from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rankfold_client.spool.frames import HEAD, frame, scan

RECORDS = [b"first", b"", b"the third, which is longer"]
DATA = b"".join(map(frame, RECORDS))


def found(data: bytes) -> list[bytes]:
    """Return the records in some bytes."""
    return [record for record, _ in scan(data).records]


@given(st.lists(st.binary(max_size=50)))
def test_scan_returns_what_was_framed(records: list[bytes]) -> None:
    """Any records come back, each with the offset at which its frame ends."""
    data = b"".join(map(frame, records))
    whole = scan(data)
    assert [record for record, _ in whole.records] == records
    assert (whole.damaged, whole.torn) == (0, 0)
    assert all(data[:end].endswith(record) for record, end in whole.records)


def test_scan_drops_a_torn_last_record_alone() -> None:
    """Wherever the last write stopped, all before it is there, and nothing counts as damaged."""
    last = len(DATA) - HEAD - len(RECORDS[-1])
    for length in range(last, len(DATA)):
        cut = scan(DATA[:length])
        assert [record for record, _ in cut.records] == RECORDS[:-1]
        assert (cut.damaged, cut.torn) == (0, length - last)
        padded = scan(DATA[:last] + bytes(length - last))
        assert ([r for r, _ in padded.records], padded.damaged) == (RECORDS[:-1], 0)


def test_scan_skips_what_is_damaged_and_nothing_else() -> None:
    """Any one flipped bit costs the record that it is in, which is counted."""
    records = [bytes([65 + n]) * 20 for n in range(3)]
    size = HEAD + 20
    data = b"".join(map(frame, records))
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        hurt = scan(bytes(flipped))
        left = [record for n, record in enumerate(records) if n != place // 8 // size]
        assert [record for record, _ in hurt.records] == left
        assert (hurt.damaged, hurt.torn) == (1, 0)


@given(st.binary(max_size=200), st.integers(0, len(DATA)))
def test_scan_finds_its_way_out_of_anything(junk: bytes, at: int) -> None:
    """Whatever lies between two records, those around it are found."""
    assert found(frame(b"a") + junk + frame(b"b")) == [b"a", b"b"]
    assert len(found(junk + DATA[at:])) <= len(RECORDS)
