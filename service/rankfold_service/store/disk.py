"""What must hold of a SQLite file's place before it is opened: local, writable, ours alone."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from rankfold.errors import StoreRefused

MAGIC = b"SQLite format 3\0"
# Advisory locks and shared memory, which SQLite's WAL needs, do not hold across hosts there.
_NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs"),
        *("beegfs", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs", "fuse.ceph"),
        *("pvfs2", "orangefs", "ncpfs", "fuse.gcsfuse", "fuse.juicefs"),
    }
)
_MOUNTS = Path("/proc/self/mountinfo")


def check_place(path: Path, mounts: str | None = None) -> None:
    """Refuse a path at which a store could not live safely.

    Args:
        path: of the SQLite file, existing or not.
        mounts: what the kernel says about mounts; read from it by default.

    Raises:
        StoreRefused: with what to do about it.
    """
    folder = path.parent.absolute()
    if path.exists() and not path.is_file():
        raise StoreRefused(f"{path.absolute()} is not a file: name one")
    if not folder.is_dir():
        raise StoreRefused(f"{folder} is not a directory: create it, or name another file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreRefused(f"{folder} is not writable for this user: SQLite writes files there")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise StoreRefused(f"{path} is not readable and writable for this user")
    kind = filesystem(folder.resolve(), _read_mounts() if mounts is None else mounts)
    if kind in _NETWORK:
        raise StoreRefused(
            f"{folder} is on a network file system ({kind}), where SQLite's log can be "
            "corrupted: put the store on a local disk"
        )


def check_leftovers(path: Path) -> None:
    """Refuse what would make a new store start empty over something that was there.

    Raises:
        StoreRefused: with what to do about it.
    """
    wal = path.with_name(path.name + "-wal")
    if not path.exists():
        if wal.exists() and wal.stat().st_size:
            raise StoreRefused(
                f"{path} is gone but its log {wal} is there: restore the file from a backup, "
                "or move the log away to begin anew"
            )
        return
    with path.open("rb") as file:
        head = file.read(len(MAGIC))
    if not head:
        raise StoreRefused(
            f"{path} is empty: it may have been a store; restore it from a backup, or remove "
            "the file to begin anew"
        )
    if head != MAGIC:
        raise StoreRefused(f"{path} is not a SQLite file: name another store, or restore it")


def lock(path: Path) -> IO[bytes]:
    """Return a handle that keeps other aggregators off a store until it is closed.

    The lock is on the file itself, so that no link and no other name of it goes around it. The
    kernel lets go of it when the process ends, however it ends.

    Raises:
        StoreRefused: another process holds it.
    """
    try:
        handle = path.open("rb")
    except OSError as error:
        raise StoreRefused(f"{path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise StoreRefused(
            f"{path} is in use by another process: stop it, or name another store"
        ) from error
    return handle


class Guarded:
    """A file that others may do something to, looked at again and again.

    Args:
        path: where it is.
        known: what it is known to be; by default what is at the path.

    Attributes:
        size: what it was at the last look, or is known to be since.
        is_shorter: whether it was shorter at the last look than before; stays so.
    """

    def __init__(self, path: Path | str, known: os.stat_result | None = None) -> None:
        self.path = path
        file = os.stat(path) if known is None else known
        self._place = (file.st_dev, file.st_ino)
        self.size = file.st_size
        self.is_shorter = False

    def is_there(self) -> bool:
        """Look at it; return whether it is still the file that is at its path."""
        try:
            file = os.stat(self.path)
        except OSError:
            return False
        if (file.st_dev, file.st_ino) != self._place:
            return False
        if file.st_size != self.size:
            self.is_shorter |= file.st_size < self.size
            self.size = file.st_size
        return True


def filesystem(folder: Path, mounts: str) -> str | None:
    """Return the type of the file system that a folder is on, by the longest mount point."""
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        point = Path(_unescape(fields.split()[4]))
        if folder.is_relative_to(point):
            length = len(point.parts)
            if best is None or length >= best[0]:
                best = (length, rest.split()[0])
    return best[1] if best else None


def _read_mounts() -> str:
    """Return the kernel's list of mounts; nothing where the system has no such list."""
    return _MOUNTS.read_text(errors="replace") if _MOUNTS.exists() else ""


def _unescape(mount_point: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        mount_point = mount_point.replace(code, char)
    return mount_point


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
