"""Frames records so that a torn or damaged one is found, and costs no other."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from zlib import crc32

# Records are ASCII, so this never occurs inside one.
MARK = b"\xf5RF\xfa"
_FIELDS = struct.Struct("<4sII")
_CHECK = struct.Struct("<I")
HEAD = _FIELDS.size + _CHECK.size


@dataclass(slots=True)
class Scan:
    """What was found in a stretch of a segment.

    Attributes:
        records: each record with the offset at which its frame ends.
        damaged: how many stretches could not be read; each was one record or more.
        torn: bytes at the end that a write which never came to its end left behind.
    """

    records: list[tuple[bytes, int]] = field(default_factory=list)
    damaged: int = 0
    torn: int = 0


def frame(record: bytes) -> bytes:
    """Return a record with its length and checksums before it."""
    fields = _FIELDS.pack(MARK, len(record), crc32(record))
    return b"".join((fields, _CHECK.pack(crc32(fields)), record))


def scan(data: bytes, start: int = 0) -> Scan:
    """Return all records from an offset on that are whole, whatever lies between them."""
    found, at = Scan(), start
    while at < len(data):
        end = end_of(data, at)
        if end is not None:
            found.records.append((data[at + HEAD : end], end))
            at = end
            continue
        after = _next(data, at)
        if after == len(data) and _is_torn(data, at):
            found.torn = len(data) - at
        else:
            found.damaged += 1
        at = after
    return found


def _length(data: bytes, at: int) -> int | None:
    """Return the length of the record whose frame begins here, or None where none does."""
    if len(data) - at < HEAD:
        return None
    mark, length, _ = _FIELDS.unpack_from(data, at)
    (check,) = _CHECK.unpack_from(data, at + _FIELDS.size)
    whole = mark == MARK and check == crc32(data[at : at + _FIELDS.size])
    return int(length) if whole else None


def end_of(data: bytes, at: int) -> int | None:
    """Return where the frame that begins here ends, or None where no whole one does."""
    length = _length(data, at)
    if length is None or len(data) - at - HEAD < length:
        return None
    end = at + HEAD + length
    (_, _, check) = _FIELDS.unpack_from(data, at)
    return end if crc32(data[at + HEAD : end]) == check else None


def _next(data: bytes, at: int) -> int:
    """Return where the next whole frame begins, or the end."""
    while (at := data.find(MARK, at + 1)) >= 0:
        if end_of(data, at) is not None:
            return at
    return len(data)


def _is_torn(data: bytes, at: int) -> bool:
    """Say whether what begins here is the beginning of a frame, or room that was never filled."""
    rest = len(data) - at
    if rest < HEAD:
        return MARK.startswith(data[at : at + len(MARK)]) or not any(data[at:])
    length = _length(data, at)
    if length is not None:
        return rest < HEAD + length
    return not any(data[at:])
