"""Where the programs of others are that the tests run, and what they need to run."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

import pytest

# `make programs` puts them here where they are not installed, laid out as a package lays them.
FETCHED = Path(sys.prefix) / "programs"


def places() -> str:
    """Return where to look: PATH, where Debian puts servers, and what was fetched."""
    postgresql = "usr/lib/postgresql/*/bin"
    found = [os.environ.get("PATH", os.defpath), "/usr/sbin"]
    for root in (Path("/"), FETCHED):
        found += map(str, sorted(root.glob(postgresql), reverse=True))
    return os.pathsep.join([*found, str(FETCHED / "usr/bin"), str(FETCHED / "usr/sbin")])


def find(*names: str) -> str | None:
    """Return the path of a program that goes by any of the names, or None."""
    return next((path for name in names if (path := shutil.which(name, path=places()))), None)


def environment(path: str) -> dict[str, str]:
    """Return the environment for a program: what was fetched finds its libraries through it."""
    root = next((folder for folder in Path(path).parents if folder.name == FETCHED.name), None)
    if root is None:
        return dict(os.environ)
    folders = (*root.glob("lib/*-linux-gnu"), *root.glob("usr/lib/*-linux-gnu"))
    return os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(map(str, folders))}


def open_to_all(path: str) -> str:
    """Return where any user may run a program: there, or for one that was fetched in a copy."""
    if not Path(path).is_relative_to(FETCHED) or all(
        folder.stat().st_mode & stat.S_IXOTH for folder in FETCHED.parents
    ):
        return path
    return str(_copy() / Path(path).relative_to(FETCHED))


@functools.cache
def _copy() -> Path:
    """Copy what was fetched out of a folder that is closed to others, such as root's home."""
    folder = Path(tempfile.mkdtemp(prefix="rankfold-programs-"))
    atexit.register(shutil.rmtree, folder)
    folder.chmod(0o755)
    shutil.copytree(FETCHED, folder / FETCHED.name, symlinks=True)
    return folder / FETCHED.name


def needs(programs: dict[str, str | None]) -> pytest.MarkDecorator:
    """Return the mark that skips a test where one of its programs was not found."""
    lacking = ", ".join(name for name, path in programs.items() if path is None)
    return pytest.mark.skipif(
        bool(lacking),
        reason=f"not found: {lacking}; "
        "`make programs` fetches them where apt-get works, elsewhere put them on PATH",
    )
