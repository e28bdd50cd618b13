from __future__ import annotations

import multiprocessing
import os
import socket
from pathlib import Path

import pytest

from rankfold_client.origin import Origin
from rankfold_client.spool.names import new_name, rank_key, segments_in
from rankfold_client.spool.segment import MAGIC, START, Segment, Unreadable

HEADER = {"project": "p", "run": "r", "attempt": 1, "rank": 0}
KEY = rank_key(HEADER)
RECORDS = [b"one", b"two", b"three"]


def written(folder: Path, *records: bytes) -> Path:
    """Return a segment that a process left with some records."""
    segment = Segment.create(folder, KEY, Origin(HEADER, {"dtype": "bf16"}))
    for record in records or RECORDS:
        segment.append(record)
    segment.sync()
    segment.close()
    return segment.path


def claimed(path: Path) -> Segment:
    """Return a segment that must be free."""
    segment = Segment.claim(path)
    assert segment is not None
    return segment


def left(path: Path) -> list[bytes]:
    """Return the records that are not done with."""
    segment = claimed(path)
    segment.close()
    return [record for record, _ in segment.loaded]


def test_segment_says_whose_it_is_and_what_it_holds(tmp_path: Path) -> None:
    """Another process finds the members that reports begin with, and all records in order."""
    segment = claimed(written(tmp_path))
    assert (segment.origin.header, segment.origin.meta) == (HEADER, {"dtype": "bf16"})
    assert [record for record, _ in segment.loaded] == RECORDS
    assert (segment.unread, segment.origin.dropped) == (3, 0)
    segment.close()


def test_segment_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    """While it is open nobody else claims it; closed or deleted it is free or gone."""
    segment = Segment.create(tmp_path, KEY, Origin(HEADER))
    assert Segment.claim(segment.path) is None
    segment.close()
    again = claimed(segment.path)
    assert Segment.claim(segment.path) is None
    again.delete()
    assert Segment.claim(segment.path) is None
    assert list(tmp_path.iterdir()) == []


def test_segment_is_not_held_by_a_forked_child(tmp_path: Path) -> None:
    """A child that outlives its parent does not keep the segment from others."""
    segment = Segment.create(tmp_path, KEY, Origin(HEADER))
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        theirs.send(b"x")
        theirs.recv(1)
        os._exit(0)
    theirs.close()
    with ours:
        assert ours.recv(1) == b"x"
        segment.close()
        claimed(segment.path).close()
    os.waitpid(child, 0)


def test_segment_begins_after_what_is_done_with(tmp_path: Path) -> None:
    """A mark says what was delivered and how many were given up."""
    path = written(tmp_path)
    segment = claimed(path)
    segment.done, segment.origin.dropped = segment.loaded[1][1], 7
    segment.mark()
    segment.close()
    assert left(path) == [b"three"]
    assert claimed(path).origin.dropped == 7


def test_segment_with_a_torn_mark_is_delivered_again(tmp_path: Path) -> None:
    """A mark that cannot be trusted marks nothing."""
    path = written(tmp_path)
    segment = claimed(path)
    segment.done = segment.loaded[2][1]
    segment.mark()
    segment.close()
    data = bytearray(path.read_bytes())
    data[len(MAGIC)] ^= 1
    path.write_bytes(data)
    assert left(path) == RECORDS


def test_segment_drops_a_torn_last_record_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file cut anywhere in its last record holds all others, and the log says so."""
    path = written(tmp_path)
    data = path.read_bytes()
    for length in range(len(data) - 16 - len(RECORDS[-1]) + 1, len(data)):
        path.write_bytes(data[:length])
        segment = claimed(path)
        segment.close()
        assert [record for record, _ in segment.loaded] == RECORDS[:-1]
        assert segment.origin.dropped == 0
    assert "a record that was never finished" in caplog.text


def test_segment_counts_damage_in_the_middle_as_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that cannot be read costs no other and is no silent gap."""
    path = written(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"two", b"twO"))
    segment = claimed(path)
    segment.close()
    assert [record for record, _ in segment.loaded] == [b"one", b"three"]
    assert segment.origin.dropped == 1
    assert "1 places are damaged" in caplog.text


@pytest.mark.parametrize(
    "content",
    [b"", b"x" * 100, MAGIC, MAGIC + bytes(START), b"rankfold spool 2" + bytes(200)],
)
def test_segment_that_says_not_whose_it_is_is_left(tmp_path: Path, content: bytes) -> None:
    """What cannot be attributed is not touched, and is not held."""
    path = tmp_path / new_name(KEY, "x")
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(Unreadable, match="does not say whose it is"):
            Segment.claim(path)
    assert path.read_bytes() == content


def test_segment_of_another_shape_is_left(tmp_path: Path) -> None:
    """A head without a rank says nothing."""
    segment = Segment.create(tmp_path, KEY, Origin({"project": "p"}))
    segment.close()
    with pytest.raises(Unreadable):
        Segment.claim(segment.path)


def test_segment_keeps_whole_records_where_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a record is taken back, and the next one follows the last whole one."""
    segment = Segment.create(tmp_path, KEY, Origin(HEADER))
    segment.append(b"one")
    whole = os.pwrite
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", lambda fd, data, at: whole(fd, data[:20], at))
        with pytest.raises(OSError, match="found room"):
            segment.append(b"a longer record")
    assert segment.path.stat().st_size == segment.end
    segment.append(b"two")
    segment.close()
    assert left(segment.path) == [b"one", b"two"]


def _claim_all(folder: str, results: multiprocessing.Queue[list[str]]) -> None:
    found = [Segment.claim(path) for path in segments_in(Path(folder))]
    mine = [segment for segment in found if segment is not None]
    results.put([segment.path.name for segment in mine])
    for segment in mine:
        segment.delete()


def test_segments_are_shared_out_among_processes(tmp_path: Path) -> None:
    """Of several processes that look at the same time each segment goes to exactly one."""
    names = {written(tmp_path, b"x").name for _ in range(20)}
    fork = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[list[str]] = fork.Queue()
    workers = [fork.Process(target=_claim_all, args=(str(tmp_path), results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    taken = [name for _ in workers for name in results.get(timeout=60)]
    for worker in workers:
        worker.join()
    results.close()
    results.join_thread()
    assert sorted(taken) == sorted(names)


@pytest.mark.parametrize(
    "run", ["r", "Qwen3-8B", "x" * 200, "日本語", "a b%2F?#&+\\\"'", "CON", "...", "e\u0301", "-"]
)
def test_segment_names_are_safe_and_tell_runs_apart(tmp_path: Path, run: str) -> None:
    """Any name the contract allows gives a file name that every disk takes."""
    key = rank_key({"project": "p", "run": run, "rank": 12})
    name = new_name(key, "ab12")
    assert name.isascii()
    assert len(name) < 130
    assert name == name.lower()
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789-.")
    (tmp_path / name).touch()
    (tmp_path / name).with_suffix(".new").touch()
    others = [run.swapcase() + "x", run + " ", run[:-1] + "é"]
    for other in others:
        assert segments_in(tmp_path, rank_key({"project": "p", "run": other, "rank": 12})) == []
    assert segments_in(tmp_path, rank_key({"project": "q", "run": run, "rank": 12})) == []
    assert segments_in(tmp_path, rank_key({"project": "p", "run": run, "rank": 1})) == []
    assert segments_in(tmp_path, key) == segments_in(tmp_path) == [tmp_path / name]


def test_segment_names_tell_case_apart_where_the_disk_does_not() -> None:
    """Runs that differ in case only have digests that differ."""
    keys = {rank_key({"project": "p", "run": run, "rank": 0}) for run in ("Run", "run", "RUN")}
    assert len({key.lower() for key in keys}) == 3
