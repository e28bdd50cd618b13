"""Outbox, writer, keeper and sender together, stepped by hand on a real directory."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rankfold.errors import FieldError, Inconsistent, NotFound, Unauthenticated, Unreachable
from rankfold.partial import Partial
from rankfold_client.items import FINISH, OPEN, partial_item
from rankfold_client.origin import Origin
from rankfold_client.outbox import Outbox
from rankfold_client.sender import Sender
from rankfold_client.spool import keeper as keeper_module
from rankfold_client.spool import writer as writer_module
from rankfold_client.spool.keeper import LOOK_EVERY, TICK, Keeper
from rankfold_client.spool.names import segments_in
from rankfold_client.spool.opening import DEFAULT_BYTES, open_writer
from rankfold_client.spool.segment import MAGIC, Segment
from rankfold_client.spool.writer import Writer
from unit.client.fakes import Clock, FakeTransport, microbatches

ORIGIN = Origin({"project": "p", "run": "r", "attempt": 0, "rank": 0})


class Process:
    """One trainer's side of a spool without its threads."""

    def __init__(
        self,
        folder: Path,
        attempt: int = 0,
        rank: int = 0,
        max_items: int = 1000,
        limit: int = 1 << 20,
        transport: FakeTransport | None = None,
    ) -> None:
        self.clock = Clock()
        self.transport = transport or FakeTransport()
        header = {"project": "p", "run": "r", "attempt": attempt, "rank": rank}
        self.own = Origin(header, {"attempt": str(attempt)})
        self.writer = Writer(folder, self.own, limit, self.clock)
        self.writer.rotate()
        self.outbox = Outbox(max_items, 1 << 30, self.clock, self.own, self.writer)
        self.sender = Sender(
            self.outbox, self.transport, "r", clock=self.clock, jitter=lambda: 1.0, patient=True
        )
        self.keeper = Keeper(folder, self.outbox, self.writer, self.clock)

    def put(self, *microbatches: int, iteration: int = 0) -> None:
        """Put a partial for each microbatch."""
        for microbatch in microbatches:
            partial = Partial(valid=1, count=0, max=0.0, sum=0.0)
            self.outbox.put(partial_item("s", iteration, microbatch, partial))

    def work(self, rounds: int = 30) -> None:
        """Let keeper and sender go on for some seconds."""
        for _ in range(rounds):
            self.keeper.step()
            while self.sender.step() == 0.0:
                pass
            self.clock.now += TICK

    def die(self) -> None:
        """Let go of everything without tidying, as a killed process does."""
        for segment in self.keeper._segments():
            segment.close()

    def attempts(self) -> list[int]:
        """Return the attempt of each accepted report."""
        return [report["attempt"] for report in self.transport.accepted]


def test_spool_of_a_dead_process_is_delivered_by_the_next(tmp_path: Path) -> None:
    """The next process of the rank sends it as the attempt that it was of, and tidies up."""
    dead = Process(tmp_path, attempt=0)
    dead.outbox.put(OPEN)
    dead.put(0, 1, 2)
    dead.die()
    for other in (Process(tmp_path, rank=1), Process(tmp_path / "elsewhere")):
        other.work(2)
        assert other.transport.accepted == []
    following = Process(tmp_path, attempt=1)
    following.put(0, iteration=5)
    assert len(following.outbox) == 2  # what others left is not known yet, but not forgotten
    following.work()
    assert sorted(microbatches(following.transport.accepted)) == [(0, 0), (0, 1), (0, 2), (5, 0)]
    metas = {r["attempt"]: r.get("meta") for r in following.transport.accepted}
    assert metas == {0: {"attempt": "0"}, 1: None}
    assert len(following.outbox) == 0
    following.keeper.close()
    assert len(segments_in(tmp_path, following.writer.key)) == 0


def test_spool_of_a_live_process_is_left_to_it(tmp_path: Path) -> None:
    """What is locked is not delivered twice, and is looked at again later."""
    first = Process(tmp_path)
    first.put(0)
    second = Process(tmp_path, attempt=1)
    second.work(2)
    assert (second.transport.accepted, len(second.outbox)) == ([], 0)
    first.die()
    # Some looks, for a process that is being started may share the lock for a moment.
    second.work(round(4 * LOOK_EVERY / TICK))
    assert microbatches(second.transport.accepted) == [(0, 0)]


def test_spool_keeps_what_is_delivered_out_of_the_next_process(tmp_path: Path) -> None:
    """What the keeper wrote down as delivered is not sent again."""
    dead = Process(tmp_path)
    dead.put(0, 1)
    dead.work(3)
    dead.put(2)
    dead.die()
    following = Process(tmp_path)
    following.work()
    assert microbatches(following.transport.accepted) == [(0, 2)]


def test_spool_holds_what_finds_no_room_in_memory(tmp_path: Path) -> None:
    """A queue of a few items delivers thousands in order, reading back what waits on disk."""
    process = Process(tmp_path, max_items=100, transport=FakeTransport([Unreachable("x")] * 3))
    process.put(*range(2000))
    assert (process.outbox.ready, len(process.outbox)) == (100, 2001)
    process.work(20)
    process.put(*range(2000, 2010))
    process.work(100)
    assert microbatches(process.transport.accepted) == [(0, n) for n in range(2010)]
    assert (process.outbox.dropped, len(process.outbox)) == (0, 0)
    assert len(process.writer.segments) == 1


def test_spool_refuses_the_newest_when_full_and_says_so(tmp_path: Path) -> None:
    """Beyond its bound nothing is kept or sent, the number is told, and room comes back."""
    process = Process(tmp_path, limit=1 << 16, transport=FakeTransport([Unreachable("x")]))
    process.put(*range(2000))
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert size < (1 << 16) + 200
    kept = 2000 - process.outbox.dropped
    assert 0 < kept < 2000
    assert process.outbox.why_full == "the spool is full"
    process.work()
    assert microbatches(process.transport.accepted) == [(0, n) for n in range(kept)]
    assert process.transport.accepted[-1]["dropped"] == 2000 - kept
    process.put(0, iteration=1)
    process.work(3)
    assert microbatches(process.transport.accepted)[-1] == (1, 0)


def test_spool_counts_what_others_left_in_its_bound(tmp_path: Path) -> None:
    """A rank that dies again and again does not fill the disk."""
    for _ in range(4):
        process = Process(tmp_path, limit=1 << 16, transport=FakeTransport([Unreachable("x")] * 9))
        process.work(2)
        process.put(*range(2000))
        process.die()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3 << 16


def test_spool_tells_what_a_dead_process_gave_up(tmp_path: Path) -> None:
    """A number that was not told before the kill is told by the next process: no silent gap."""
    dead = Process(tmp_path, limit=1 << 16)
    dead.put(*range(2000))
    dropped = dead.outbox.dropped
    dead.die()
    following = Process(tmp_path, attempt=1, limit=1 << 20)
    following.work()
    assert {report["dropped"] for report in following.transport.accepted} == {dropped}
    assert set(following.attempts()) == {0}


def test_spool_tells_of_damage(tmp_path: Path) -> None:
    """What cannot be read back is told as given up by the attempt that it was of."""
    dead = Process(tmp_path)
    dead.put(0, 1, 2)
    dead.die()
    (path,) = segments_in(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"s",0,1,', b'"s",0,7,'))
    following = Process(tmp_path, attempt=1)
    following.work()
    assert microbatches(following.transport.accepted) == [(0, 0), (0, 2)]
    assert following.transport.accepted[0]["dropped"] == 1
    assert segments_in(tmp_path, following.writer.key) == [following.writer.segments[0].path]


def test_spool_tells_of_damage_to_what_it_wrote_itself(tmp_path: Path) -> None:
    """Records that waited on disk only and cannot be read back are counted as dropped."""
    process = Process(tmp_path, max_items=2, transport=FakeTransport([Unreachable("x")]))
    process.put(*range(5))
    (path,) = segments_in(tmp_path)
    with path.open("r+b") as file:
        data = file.read()
        file.seek(data.index(b'"s",0,3,'))
        file.write(b'"S"')
    process.work()
    assert microbatches(process.transport.accepted) == [(0, 0), (0, 1), (0, 2), (0, 4)]
    assert (process.outbox.dropped, len(process.outbox)) == (1, 0)
    assert process.transport.accepted[-1]["dropped"] == 1


def test_spool_drops_a_record_that_this_version_does_not_know(tmp_path: Path) -> None:
    """What another version wrote is counted and costs nothing else."""
    dead = Process(tmp_path)
    dead.put(0)
    dead.writer.segments[0].append(b'["a kind of the future"]')
    dead.put(1)
    dead.die()
    following = Process(tmp_path)
    following.work()
    assert microbatches(following.transport.accepted) == [(0, 0), (0, 1)]
    assert following.transport.accepted[-1]["dropped"] == 1


def test_spool_finishes_after_everything_before(tmp_path: Path) -> None:
    """A finish that a dead process left follows what it reported, for its attempt."""
    dead = Process(tmp_path, attempt=3)
    dead.put(0)
    dead.outbox.put(FINISH)
    dead.die()
    following = Process(tmp_path, attempt=4)
    following.work()
    assert following.transport.finished == [("p", "r", 3)]
    assert microbatches(following.transport.accepted) == [(0, 0)]


def test_spool_finish_of_a_run_that_is_gone_is_given_up(tmp_path: Path) -> None:
    """Where the run was deleted its finish would otherwise be tried for ever."""
    process = Process(tmp_path, transport=FakeTransport([NotFound("no such run")]))
    process.outbox.put(FINISH)
    process.work()
    assert (len(process.outbox), process.outbox.dropped) == (0, 1)


def test_spool_waits_for_a_better_token(tmp_path: Path) -> None:
    """What an aggregator refuses to hear from us is kept; what it says is wrong is given up."""
    answers: list[Exception | None] = [Unauthenticated("no token"), NotFound("no such path")]
    answers += [Inconsistent([FieldError("/partials", "x")])]
    process = Process(tmp_path, transport=FakeTransport(answers))
    process.put(0)
    process.work()
    assert process.outbox.dropped == 1
    assert len(process.transport.bodies) == 4


def failing(*_: Any) -> int:
    """Stand in for a disk without room."""
    raise OSError(errno.ENOSPC, "no room")


def test_spool_goes_on_in_memory_while_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No error reaches the trainer, everything is delivered, and the log says what is not kept."""
    process = Process(tmp_path, max_items=5, transport=FakeTransport([Unreachable("x")]))
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", failing)
        process.put(*range(7))
        process.keeper.step()
        assert (process.outbox.ready, process.outbox.dropped) == (5, 2)
        assert process.outbox.in_memory_only == 5
    process.sender.complain()
    assert "kept in memory only (OSError: [Errno 28] no room)" in caplog.text
    process.work(5)
    process.put(7)
    process.die()
    following = Process(tmp_path)
    following.work()
    assert microbatches(process.transport.accepted) == [(0, n) for n in range(5)]
    assert microbatches(following.transport.accepted) == [(0, 7)]


@pytest.mark.parametrize("well", [True, False])
def test_spool_has_or_counts_at_the_end_what_was_in_memory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, well: bool
) -> None:
    """What the disk had no room for is written once it has, or told as given up, never lost."""
    down = FakeTransport([Unreachable("x")] * 99)
    process = Process(tmp_path, transport=down)
    process.put(0)
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", failing)
        process.put(1, 2)
    process.work(3)
    process.put(3)
    assert process.outbox.in_memory_only == 2
    if not well:
        process.writer.fail(OSError(errno.ENOSPC, "no room"))
    process.keeper.close()
    kept = process.keeper.leave(0.0)
    assert down.accepted == []
    assert kept.startswith(f"; {4 if well else 2} items are kept in ")
    following = Process(tmp_path)
    following.work()
    told = [report.get("dropped", 0) for report in following.transport.accepted]
    assert sorted(microbatches(following.transport.accepted)) == [
        (0, n) for n in ([0, 1, 2, 3] if well else [0, 3])
    ]
    assert max(told) == (0 if well else 2)


def test_spool_that_was_removed_is_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All files in use are back with what they hold, those of a dead process too, told once."""
    folder = tmp_path / "spool"
    dead = Process(folder, max_items=2)
    dead.put(0, 1, 2)
    dead.die()
    down = FakeTransport([Unreachable("x")] * 99)
    process = Process(folder, attempt=1, max_items=5, transport=down)
    process.keeper.step()
    process.put(*range(10), iteration=1)
    process.work(2)
    assert process.outbox.ready < len(process.outbox) == 13
    names = segments_in(folder)
    assert len(names) == 2
    shutil.rmtree(folder)
    process.put(10, iteration=1)
    process.keeper.step()
    process.put(11, iteration=1)
    assert segments_in(folder) == names
    assert caplog.text.count("files in use (2) were removed or moved away") == 1
    process.die()
    following = Process(folder)
    following.work()
    told = [(0, n) for n in range(3)] + [(1, n) for n in range(12)]
    assert sorted(microbatches(following.transport.accepted)) == told
    assert following.outbox.dropped == 0


@pytest.mark.parametrize("left", [0, 10, 30, 150, 300])
@pytest.mark.parametrize("looked", [True, False])
def test_spool_that_was_cut_off_holds_again_what_is_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, left: int, looked: bool
) -> None:
    """`truncate` under a trainer, and of what a dead one left: told once, all that was known."""
    dead = Process(tmp_path)
    dead.put(0, 1, 2)
    dead.die()
    process = Process(tmp_path, 1, transport=FakeTransport([Unreachable("x")] * 99))
    process.keeper.step()
    process.put(*range(6), iteration=1)
    if looked:
        process.clock.now += TICK
        process.keeper.step()
    paths = segments_in(tmp_path)
    assert len(paths) == 2
    assert min(path.stat().st_size for path in paths) > 300
    for path in paths:
        os.truncate(path, left)
    if looked or left < len(MAGIC):
        process.put(6, iteration=1)
    process.clock.now += TICK
    process.keeper.step()
    process.put(7, iteration=1)
    assert caplog.text.count("files in use (2) were cut off") == 1
    process.clock.now += TICK
    process.keeper.step()
    assert caplog.text.count("cut off") == 1
    process.die()
    following = Process(tmp_path)
    following.work()
    told = [(0, n) for n in range(3)] + [(1, n) for n in range(8)]
    if not looked and left >= len(MAGIC):
        told.remove((1, 6))
    assert sorted(microbatches(following.transport.accepted)) == told
    assert following.outbox.dropped == 0


def test_spool_that_was_cut_off_counts_what_was_on_disk_only(tmp_path: Path) -> None:
    """What had no room in memory is lost with the file, and the next report says so."""
    transport = FakeTransport([Unreachable("x")] * 3)
    process = Process(tmp_path, max_items=4, transport=transport)
    process.put(*range(9))
    os.truncate(segments_in(tmp_path)[0], 0)
    process.work()
    assert microbatches(transport.accepted) == [(0, n) for n in range(4)]
    assert process.outbox.dropped == transport.accepted[-1]["dropped"] == 5
    assert len(process.outbox) == 0


def test_spool_that_was_removed_is_made_anew_at_the_end(tmp_path: Path) -> None:
    """What a trainer closes with and could not deliver is there, whenever its files went."""
    process = Process(tmp_path / "spool", transport=FakeTransport([Unreachable("x")] * 99))
    process.put(0, 1)
    process.work(2)
    shutil.rmtree(tmp_path / "spool")
    process.keeper.close()
    following = Process(tmp_path / "spool")
    following.work()
    assert microbatches(following.transport.accepted) == [(0, 0), (0, 1)]


@pytest.mark.parametrize(("where", "what"), [(os, "pwrite"), (os, "open"), (Path, "rename")])
def test_spool_that_cannot_be_made_anew_counts_what_is_not_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: Any,
    what: str,
) -> None:
    """Until the disk lets us, items wait in memory, nothing is left half done, one line tells."""
    folder = tmp_path / "spool"
    process = Process(folder, transport=FakeTransport([Unreachable("x")] * 99))
    process.put(0)
    process.keeper.step()
    shutil.rmtree(folder)
    process.clock.now += TICK
    with monkeypatch.context() as full:
        full.setattr(where, what, failing)
        for _ in range(3):
            process.keeper.step()
            process.put(1)
    assert process.outbox.unkept == (3, "OSError: [Errno 28] no room")
    assert list(folder.iterdir()) == []
    assert caplog.text.count("removed or moved away") == 1
    process.keeper.step()
    process.put(2)
    process.die()
    following = Process(folder)
    following.work()
    assert microbatches(following.transport.accepted) == [(0, 0), (0, 2)]


def test_spool_stays_away_from_a_disk_that_does_not_answer(tmp_path: Path) -> None:
    """While the keeper waits for the disk, or after one long write, nothing touches it."""
    process = Process(tmp_path)
    process.writer.busy_since = process.clock()
    process.put(0)
    process.clock.now += writer_module.STUCK
    process.put(1)
    assert process.outbox.in_memory_only == 1
    process.writer.judge(None)
    process.put(2)
    process.writer.fail(TimeoutError("one write took 2 seconds"))
    process.put(3)
    assert process.outbox.in_memory_only == 2
    process.die()
    following = Process(tmp_path)
    following.work()
    assert microbatches(following.transport.accepted) == [(0, 0), (0, 2)]


def test_spool_notices_one_long_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that took a second is the last one until the keeper found the disk well."""
    process = Process(tmp_path)
    append = Segment.append

    def slow(segment: Segment, record: bytes) -> None:
        process.clock.now += 2 * writer_module.SLOW
        append(segment, record)

    with monkeypatch.context() as hanging:
        hanging.setattr(Segment, "append", slow)
        process.put(0, 1)
    assert process.outbox.unkept == (1, "TimeoutError: one write took 2.0 seconds")
    process.keeper.step()
    process.put(2)
    assert (process.outbox.in_memory_only, len(process.outbox)) == (1, 3)


def test_spool_keeps_nothing_that_cannot_be_written(tmp_path: Path) -> None:
    """A statistic of a foreign type raises nothing into the trainer."""
    process = Process(tmp_path)
    partial = Partial(valid=1, count=0, max=0.0, sum=b"")  # type: ignore[arg-type]
    assert process.outbox.put(partial_item("s", 0, 0, partial)) == 1
    assert process.outbox.unkept[0] == 1


def test_spool_begins_new_segments_and_deletes_old_ones(tmp_path: Path) -> None:
    """A segment of its full length is followed by another and goes when all is delivered."""
    process = Process(tmp_path, limit=1 << 16)
    for iteration in range(20):
        process.put(*range(100), iteration=iteration)
        process.work(3)
    assert process.outbox.dropped == 0
    assert len(segments_in(tmp_path)) <= 2
    assert len(microbatches(process.transport.accepted)) == 2000


def test_spool_leaves_what_it_cannot_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file of the right name with other content is named once and not touched."""
    process = Process(tmp_path)
    foreign = tmp_path / f"{process.writer.key}x.spool"
    foreign.write_text("something else")
    process.work(2)
    process.clock.now += LOOK_EVERY
    process.work(2)
    assert len(process.outbox) == 0
    assert process.keeper.unreadable == {foreign}
    assert caplog.text.count("left as it is") == 1
    assert foreign.read_text() == "something else"


def test_spool_reads_nothing_of_a_large_file_that_is_none_of_its_own(tmp_path: Path) -> None:
    """A file of any size may lie in the directory; it does not take the trainer's memory."""
    process = Process(tmp_path)
    foreign = tmp_path / f"{process.writer.key}x.spool"
    with foreign.open("wb") as file:
        file.truncate(1 << 40)
    process.work(2)
    assert process.keeper.unreadable == {foreign}


def test_spool_is_well_where_another_process_deletes_while_it_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that `spool flush` deletes between two looks is no trouble of the disk."""
    process = Process(tmp_path)
    gone = tmp_path / f"{process.writer.key}0.spool"
    listed = [*segments_in(tmp_path), gone]
    monkeypatch.setattr(keeper_module, "segments_in", lambda *_: listed)
    process.keeper.step()
    process.put(0)
    assert (process.outbox.unkept[0], process.outbox.in_memory_only) == (0, 0)


def test_spool_is_opened_as_arguments_or_the_environment_say(tmp_path: Path) -> None:
    """An argument wins, an empty one says that there is none, and the bound has a default."""
    environment = {"RANKFOLD_SPOOL_DIR": str(tmp_path / "a"), "RANKFOLD_SPOOL_BYTES": "65536"}
    assert open_writer({}, None, None, ORIGIN) is None
    assert open_writer(environment, "", None, ORIGIN) is None
    for told, spool, folder, limit in (
        (environment, None, "a", 65536),
        ({}, tmp_path / "b" / "c", "b/c", DEFAULT_BYTES),
    ):
        writer = open_writer(told, spool, None, ORIGIN)
        assert writer is not None
        assert (writer.folder, writer._limit) == (tmp_path / folder, limit)
        writer.segments[0].delete()


@pytest.mark.parametrize(
    ("spool", "spool_bytes", "environment"),
    [
        *((3, None, {}), (b"x", None, {}), ("a\0b", None, {}), ("x", 100, {}), ("x", True, {})),
        *(("x", 1e9, {}), ("x", None, {"RANKFOLD_SPOOL_BYTES": "many"})),
    ],
)
def test_spool_of_nonsense_is_refused(
    spool: Any, spool_bytes: Any, environment: dict[str, str]
) -> None:
    """What can never be a directory or a bound is a ValueError at the start."""
    with pytest.raises(ValueError, match=r"spool|SPOOL"):
        open_writer(environment, spool, spool_bytes, ORIGIN)


def test_spool_that_cannot_be_made_is_logged_and_made_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A trainer starts without its spool, and has it as soon as the disk allows."""
    caplog.set_level(logging.WARNING, "rankfold")
    blocked = tmp_path / "blocked"
    blocked.touch()
    writer = open_writer({}, blocked / "spool", None, ORIGIN)
    assert writer is not None
    assert "cannot be used" in caplog.text
    clock = Clock()
    outbox = Outbox(10, 1 << 20, clock, ORIGIN, writer)
    keeper = Keeper(writer.folder, outbox, writer, clock)
    outbox.put(OPEN)
    keeper.step()
    assert (outbox.in_memory_only, len(outbox)) == (1, 1)
    blocked.unlink()
    clock.now += LOOK_EVERY
    keeper.step()
    outbox.put(OPEN)
    assert outbox.in_memory_only == 1
    keeper.close()


@pytest.mark.parametrize(
    ("length", "old", "locked", "left"),
    [
        (None, True, False, [".spool"]),  # all of it
        (-3, True, False, [".spool"]),  # torn
        (0, True, False, []),
        (20, True, False, []),
        (None, False, False, [".new"]),
        (None, True, True, [".new"]),
    ],
)
def test_spool_brings_back_what_a_kill_left_of_a_file_that_was_begun_anew(
    tmp_path: Path, length: int | None, old: bool, locked: bool, left: list[str]
) -> None:
    """What holds records is delivered, what holds none goes, and nobody's who lives is touched."""
    killed = Process(tmp_path)
    killed.put(0, 1)
    killed.die()
    (path,) = tmp_path.iterdir()
    begun = path.with_suffix(".new")
    begun.write_bytes(path.read_bytes()[:length])
    path.unlink()
    if old:
        os.utime(begun, (1e9, 1e9))
    following = Process(tmp_path)
    holder = begun.open()
    if locked:
        fcntl.flock(holder, fcntl.LOCK_EX)
    following.keeper.step()
    ours = following.writer.segments[0].path
    assert [path.suffix for path in tmp_path.iterdir() if path != ours] == left
    following.work()
    holder.close()
    delivered = {None: [(0, 0), (0, 1)], -3: [(0, 0)]}.get(length, [])
    assert microbatches(following.transport.accepted) == (delivered if left == [".spool"] else [])


def test_spool_keeps_what_it_has_beside_what_a_kill_left_of_a_copy(tmp_path: Path) -> None:
    """A file that was put back meanwhile has all that the copy has."""
    killed = Process(tmp_path)
    killed.put(0, 1)
    killed.die()
    (path,) = tmp_path.iterdir()
    copy = path.with_suffix(".new")
    copy.write_bytes(path.read_bytes()[:-3])
    os.utime(copy, (1e9, 1e9))
    following = Process(tmp_path)
    following.work()
    assert microbatches(following.transport.accepted) == [(0, 0), (0, 1)]
    assert not copy.exists()
