"""Disks that fail under a running aggregator, made without touching this machine's own.

A limit on the size of files, set from outside on the running process, refuses writes as a disk
does that is full or read-only: a file system cannot be made read-only while a file on it is
open for writing, so no remount could do it. It needs no rights beyond the user's own.
"""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from .aggregator import Aggregator

BLOCK = 4096


@contextmanager
def no_room(server: Aggregator) -> Iterator[None]:
    """Let no file grow: a full disk, on which what is there can be written over."""
    log = server.path.with_name(server.path.name + "-wal")
    with _largest(server, log.stat().st_size):
        yield


@contextmanager
def no_writes(server: Aggregator) -> Iterator[None]:
    """Let no write succeed: a disk that turned read-only."""
    with _largest(server, 0):
        yield


@contextmanager
def _largest(server: Aggregator, size: int) -> Iterator[None]:
    assert server.process is not None
    pid = server.process.pid
    _, hard = before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        # It may have ended by its own hand.
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def no_progress(server: Aggregator) -> Iterator[None]:
    """Keep every write waiting: a disk that does not get done, by holding the file's write lock."""
    with closing(sqlite3.connect(server.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


class SmallDisk:
    """A file system in memory of its own size, seen by those only who are run on it.

    It lives in a mount namespace, which root and, where the kernel lets them, users may make.

    Args:
        folder: where it is mounted.
        size: of it, as mount takes it.
    """

    def __init__(self, folder: Path, size: str) -> None:
        users = () if os.geteuid() == 0 else ("--user", "--map-root-user")
        mount = f'mount -t tmpfs -o size={size} tmpfs "$0" && echo mounted && exec sleep 600'
        command = ["unshare", *users, "--mount", "sh", "-c", mount, str(folder)]
        self.folder = folder
        self._holder = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._holder.stdout is not None
        self.mounted = self._holder.stdout.readline() == "mounted\n"
        users = ("--user", "--preserve-credentials") if users else ()
        self.wrapper = ("nsenter", f"--target={self._holder.pid}", *users, "--mount")

    @property
    def inside(self) -> Path:
        """The mounted folder as it is reached from outside."""
        return Path(f"/proc/{self._holder.pid}/root{self.folder}")

    @contextmanager
    def filled(self, _: object = None) -> Iterator[None]:
        """Leave no byte free."""
        ballast = self.inside / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while file.write(b"x" * BLOCK):
                    pass
            except OSError:
                assert shutil.disk_usage(self.inside).free == 0
        try:
            yield
        finally:
            ballast.unlink()

    def close(self) -> None:
        """Give it up."""
        self._holder.kill()
        self._holder.communicate()
