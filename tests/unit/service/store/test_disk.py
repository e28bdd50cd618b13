"""Where a store may live, and that it is never started over something that was there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rankfold.errors import StoreRefused
from rankfold_service.store.disk import check_leftovers, check_place, filesystem, lock

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw - nfs4 server:/home rw
31 30 8:2 / /home/local rw shared:2 master:1 - xfs /dev/sdb1 rw
32 22 0:41 / /mnt/a\\040b rw - lustre mds:/x rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/home/me", "nfs4"),
        ("/home/local/x", "xfs"),
        ("/mnt/a b/c", "lustre"),
        ("/homestead", "ext4"),
    ],
)
def test_filesystem_is_that_of_the_longest_mount_point(folder: str, kind: str) -> None:
    """The innermost mount decides, whole path components at a time."""
    assert filesystem(Path(folder), MOUNTS) == kind


def test_place_on_a_network_file_system_is_refused(tmp_path: Path) -> None:
    """A store on NFS is refused and the message says what to do."""
    mounts = f"1 0 0:1 / {tmp_path} rw - nfs server:/x rw\n"
    with pytest.raises(StoreRefused, match=r"network file system \(nfs\).*local disk"):
        check_place(tmp_path / "store.db", mounts)


def test_place_without_a_directory_is_refused(tmp_path: Path) -> None:
    """The directory is not made silently: it may be a mount that is missing."""
    with pytest.raises(StoreRefused, match="is not a directory: create it"):
        check_place(tmp_path / "missing" / "store.db")


def test_place_that_is_a_directory_is_refused(tmp_path: Path) -> None:
    """The name of a folder is no name of a store."""
    with pytest.raises(StoreRefused, match="is not a file: name one"):
        check_place(tmp_path)


def test_lock_that_cannot_be_written_is_refused() -> None:
    """Where no file can be made there is no store."""
    with pytest.raises(StoreRefused, match=r"x\.db cannot be opened"):
        lock(Path("/proc/x.db"))


def test_place_without_a_list_of_mounts_is_accepted(tmp_path: Path) -> None:
    """Systems that cannot say are trusted."""
    check_place(tmp_path / "store.db", "")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "is empty"), (b"not a database at all", "is not a SQLite file")],
)
def test_leftover_file_is_never_overwritten(tmp_path: Path, content: bytes, reason: str) -> None:
    """What is no store is refused and left as it was."""
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with pytest.raises(StoreRefused, match=reason):
        check_leftovers(path)
    assert path.read_bytes() == content


def test_leftover_log_without_its_file_is_refused(tmp_path: Path) -> None:
    """A log whose database is gone is a lost database, not a new one."""
    (tmp_path / "store.db-wal").write_bytes(b"frames")
    with pytest.raises(StoreRefused, match="is gone but its log"):
        check_leftovers(tmp_path / "store.db")


def test_lock_is_refused_to_a_second_process(tmp_path: Path) -> None:
    """Another process is refused while the first lives, and served after it."""
    path = tmp_path / "store.db"
    path.touch()
    code = (
        "import pathlib, sys; from rankfold_service.store.disk import lock;"
        f"lock(pathlib.Path({str(path)!r})).close()"
    )
    with lock(path):
        refused = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        assert b"is in use by another process" in refused.stderr
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
