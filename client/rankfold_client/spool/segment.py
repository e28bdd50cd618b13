"""One file of the spool: whose it is, what it holds, and how much of that is done with.

It begins with `MAGIC` and a slot that is written in place: up to where the records are done
with, and how many items were given up, with a checksum. Framed records follow; the first says
whose the others are. The process that has the file locked is the only one that uses it, and
the kernel unlocks what a dead process had locked.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import logging
import os
import secrets
import struct
import weakref
from collections import deque
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from zlib import crc32

from rankfold_client.origin import Origin
from rankfold_client.spool.frames import HEAD, Scan, end_of, frame, scan
from rankfold_client.spool.names import HIDDEN, new_name

MAGIC = b"rankfold spool 1"
_SLOT = struct.Struct("<QQI")
START = len(MAGIC) + _SLOT.size
# How many bytes before the end are looked at again.
_TAIL = 8

_sync = getattr(os, "fdatasync", os.fsync)
log = logging.getLogger("rankfold")


class Unreadable(ValueError):
    """A file that does not say whose records it holds."""


class Segment:
    """An open and locked segment.

    `known`, `read`, `done`, `unread` and `pending` belong to the outbox, under its lock.

    Attributes:
        path: the file.
        number: one that no other of this process has; above 0.
        origin: whose the records are.
        end: the offset at which the last record ends.
        known: up to where the outbox has counted the records.
        read: up to where records are in memory or done with.
        done: up to where they are done with: delivered, or given up and counted.
        unread: how many records are on disk only.
        pending: how many are in memory and not done with.
        loaded: records that were read and not fed yet.
    """

    def __init__(self, path: Path, fd: int, origin: Origin, end: int, done: int) -> None:
        self.path, self.number, self.origin = path, next(_numbers), origin
        self.end = self.known = end
        self.read = self.done = done
        self.unread = self.pending = 0
        self.loaded: deque[tuple[bytes, int]] = deque()
        self._fd = fd
        self._marked = (-1, -1)
        self._synced = 0
        self._tail, self._cut = (0, b""), False
        _open_segments.add(self)

    @classmethod
    def create(cls, folder: Path, key: str, origin: Origin) -> Segment:
        """Begin a segment; nobody sees it before it is locked.

        Raises:
            OSError: the disk does not let us.
        """
        path = folder / new_name(key, secrets.token_hex(4))
        hidden, fd = _hidden(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            head = _head(0, origin)
            _write(fd, head, 0)
            hidden.rename(path)
        except OSError:
            os.close(fd)
            hidden.unlink(missing_ok=True)
            raise
        return cls(path, fd, origin, len(head), len(head))

    @classmethod
    def claim(cls, path: Path) -> Segment | None:
        """Take over a segment of a dead process; None where a live one has it.

        Raises:
            OSError: the disk does not let us.
            Unreadable: the file does not say whose it is; it is left as it was.
        """
        try:
            fd = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it before may have deleted it between the two lines above.
            if os.fstat(fd).st_nlink == 0:
                os.close(fd)
                return None
            return cls._opened(path, fd)
        except BlockingIOError:
            os.close(fd)
            return None
        except (OSError, ValueError):
            os.close(fd)
            raise

    @classmethod
    def _opened(cls, path: Path, fd: int) -> Segment:
        # Only what is one of ours is known to fit into memory.
        ours = _read(fd, 0, len(MAGIC)) == MAGIC
        data = _read(fd, 0, os.fstat(fd).st_size) if ours else b""
        head = end_of(data, START)
        if head is None:
            raise Unreadable(f"{path} does not say whose it is")
        done, dropped = _slot_values(data)
        done = max(done, head)
        found = scan(data, done)
        origin = _origin(path, data[START + HEAD : head], dropped + found.damaged)
        segment = cls(path, fd, origin, len(data) - found.torn, done)
        segment.loaded.extend(found.records)
        segment.unread = len(segment.loaded)
        if found.damaged or found.torn:
            log.warning(
                "%s: %d places are damaged and counted as dropped; %d bytes of a record that was "
                "never finished are left out",
                *(path, found.damaged, found.torn),
            )
        return segment

    def append(self, record: bytes) -> None:
        """Write one record, whole or not at all.

        Raises:
            OSError: the disk does not let us.
        """
        framed = frame(record)
        _write(self._fd, framed, self.end)
        self.end += len(framed)

    def load(self, start: int, end: int) -> Scan:
        """Return what lies between two offsets, each record with where it ends in the file.

        Raises:
            OSError: the disk does not let us.
        """
        found = scan(_read(self._fd, start, end - start))
        found.records = [(record, start + end) for record, end in found.records]
        return found

    def mark(self) -> None:
        """Write down what is done with and given up, where that changed.

        Raises:
            OSError: the disk does not let us.
        """
        marked = (self.done, self.origin.dropped)
        if marked != self._marked and self._fd >= 0:
            os.pwrite(self._fd, _slot(*marked), len(MAGIC))
            self._marked = marked

    def sync(self) -> None:
        """Wait until a crash of the whole machine would not lose what was appended.

        Raises:
            OSError: the disk does not let us.
        """
        if self._synced == 0:
            _sync_folder(self.path.parent)
        end = self.end
        if end != self._synced:
            _sync(self._fd)
            self._synced = end

    def is_lost(self) -> bool:
        """Say whether the file is not at its path any more: it was removed, or moved away.

        Raises:
            OSError: the disk does not let us look.
        """
        try:
            return not os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except (FileNotFoundError, NotADirectoryError):
            return True

    def is_cut(self) -> bool:
        """Say whether somebody shortened the file since the last look, or before the first.

        What is appended later makes it as long as before, with zeros where nothing is; so its
        beginning is looked at, and what stood at its end.

        Raises:
            OSError: the disk does not let us look.
        """
        at, tail = self._tail
        whole = _read(self._fd, 0, len(MAGIC)) == MAGIC and _read(self._fd, at, len(tail)) == tail
        at = self.end - _TAIL
        self._tail = at, _read(self._fd, at, _TAIL)
        self._cut |= not whole or len(self._tail[1]) < _TAIL
        return self._cut

    def restore(self, records: Iterable[tuple[bytes, int]]) -> None:
        """Write into a file that was cut what is still known, everything at its place.

        Args:
            records: each with the offset at which it ended.

        Raises:
            OSError: the disk does not let us.
        """
        _write(self._fd, _head(self.done, self.origin), 0)
        for record, end in records:
            framed = frame(record)
            _write(self._fd, framed, end - len(framed))
        self._tail, self._cut, self._synced = (0, b""), False, 0

    def renew(self, writing: AbstractContextManager[object]) -> None:
        """Write a lost file anew at its path, from what is still open here.

        Every record keeps its place, so nothing changes for who counts in offsets.

        Args:
            writing: held by who appends.

        Raises:
            OSError: the disk does not let us, or who appends; all is as before.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        hidden, fd = _hidden(self.path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            end = self.end
            _write(fd, _read(self._fd, 0, end), 0)
            with writing:
                # What was appended meanwhile, which is little.
                _write(fd, _read(self._fd, end, self.end - end), end)
                fd, self._fd = self._fd, fd
                self._synced = 0
            hidden.rename(self.path)
        except OSError:
            hidden.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    def delete(self) -> None:
        """Remove the file, and let go of it.

        Raises:
            OSError: the disk does not let us.
        """
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let go of the file, so that another process may claim it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def may_hold_records(fd: int) -> bool:
    """Say whether an open file begins as a segment does, and goes on after that."""
    data = _read(fd, 0, os.fstat(fd).st_size)
    head = end_of(data, START) if data.startswith(MAGIC) else None
    return head is not None and head < len(data)


def _hidden(path: Path) -> tuple[Path, int]:
    """Begin a file that is no segment before it has the name of one."""
    hidden = path.with_suffix(HIDDEN)
    return hidden, os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)


def _origin(path: Path, record: bytes, dropped: int) -> Origin:
    try:
        told = json.loads(record)
        header = told["header"]
        for name in ("project", "run", "attempt", "rank"):
            header[name]
        return Origin(header, told["meta"], dropped)
    except (ValueError, TypeError, KeyError) as error:
        raise Unreadable(f"{path} does not say whose it is") from error


def _head(done: int, origin: Origin) -> bytes:
    told = json.dumps({"header": origin.header, "meta": origin.meta}).encode("ascii")
    return MAGIC + _slot(done, origin.dropped) + frame(told)


def _slot(done: int, dropped: int) -> bytes:
    values = _SLOT.pack(done, dropped, 0)[:-4]
    return values + crc32(values).to_bytes(4, "little")


def _slot_values(data: bytes) -> tuple[int, int]:
    """Return what the slot says; a torn one says nothing, so that all is delivered again."""
    done, dropped, check = _SLOT.unpack_from(data, len(MAGIC))
    whole = check == crc32(data[len(MAGIC) : START - 4])
    return (done, dropped) if whole else (0, 0)


def _write(fd: int, data: bytes, at: int) -> None:
    written = os.pwrite(fd, data, at)
    if written != len(data):
        # Nearly full: what is there of the record must not be taken for one.
        os.ftruncate(fd, at)
        raise OSError(f"only {written} of {len(data)} bytes found room")


def _read(fd: int, start: int, number: int) -> bytes:
    parts, end = [], start + number
    while start < end and (part := os.pread(fd, end - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_numbers = itertools.count(1)
_open_segments: weakref.WeakSet[Segment] = weakref.WeakSet()


def _let_go_in_child() -> None:
    """Close all segments: a child that outlives its parent must not keep them locked."""
    for segment in list(_open_segments):
        segment.close()


os.register_at_fork(after_in_child=_let_go_in_child)
