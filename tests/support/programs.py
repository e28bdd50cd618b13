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

# `make programs` puts them here where they are not installed; its `bin` starts them.
FETCHED = Path(sys.prefix) / "programs"


def places() -> str:
    """Return where to look: PATH, where Debian puts servers, and what was fetched."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    path = os.environ.get("PATH", os.defpath)
    return os.pathsep.join([path, "/usr/sbin", *map(str, versions), str(FETCHED / "bin")])


def find(*names: str) -> str | None:
    """Return the path of a program that goes by any of the names, or None."""
    return next((path for name in names if (path := shutil.which(name, path=places()))), None)


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
