"""What a container engine does with a Dockerfile, where there is none: chroot and mount namespaces.

The base image is this machine's own system, and its Python. Every instruction is carried out as it
stands. What runs at last has a root that is read-only, a user that is not root, no capabilities
and an environment that holds nothing of this machine.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from support.dockerfile import Stage, assignments, stages

ROOT = Path(__file__).parents[2]
# As in the base image, `python` is the Python that it is named after.
PYTHON = Path(sys.base_prefix)
PYTHON_FOLDER = "/base-image"
BASE_PATH = f"{PYTHON_FOLDER}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SYSTEM = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
FIND_LINKS = [Path(text) for text in os.environ.get("PIP_FIND_LINKS", "").split()]
# How this machine reaches a package index is no part of an image.
NETWORK = {
    name: value
    for name, value in os.environ.items()
    if name.startswith("PIP_") or name.lower().endswith(("_proxy", "ssl_cert_file"))
}


def _possible() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("setpriv") is None:
        return False
    tried = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(
    not _possible(), reason="needs root and mount namespaces, as a container engine does"
)


class Image:
    """An image that is built, and the folder that holds its root."""

    def __init__(self, dockerfile: str, folder: Path, arguments: Mapping[str, str]) -> None:
        built: dict[str | None, Path] = {}
        for number, stage in enumerate(stages(ROOT / dockerfile)):
            root = folder / f"stage{number}"
            _lay_base(root)
            self.environment = _Builder(stage, root, built, arguments).build()
            built[stage.name] = root
            self.root, self.stage = root, stage
        self.volume = folder / "volume"

    def command(self) -> list[str]:
        """Return what a container of it runs."""
        return self.stage.command("ENTRYPOINT") + self.stage.command("CMD")

    def start(
        self, command: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        """Run a command in a container of the image, on the volume of the image's containers."""
        where = self.stage.last("VOLUME")
        if not self.volume.exists():
            # As an engine does with a new volume: what the image has there, its owner and mode.
            copy = ["cp", "-a", f"{self.root}{where}", str(self.volume)]
            subprocess.run(copy, check=True)
        user, _, group = self.stage.last("USER").partition(":")
        drop = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]
        drop += ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        inside = ["env", f"--chdir={self.stage.last('WORKDIR')}", *command]
        script = f"""
            {_mounts(self.root)}
            mount --bind {self.volume} {self.root}{where}
            mount -t tmpfs none {self.root / "tmp"}
            mount -o remount,ro,bind {self.root}
            exec chroot {self.root} {shlex.join([*drop, *inside])}
        """
        return subprocess.Popen(
            ["unshare", "--mount", "sh", "-euc", script],
            env={"PATH": BASE_PATH, **self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


class _Builder:
    """Carries out the instructions of a stage, in order."""

    def __init__(
        self,
        stage: Stage,
        root: Path,
        built: Mapping[str | None, Path],
        arguments: Mapping[str, str],
    ) -> None:
        self.stage, self.root, self.built, self.arguments = stage, root, built, arguments
        self.environment = {"PATH": BASE_PATH}
        self.folder = "/"

    def build(self) -> Mapping[str, str]:
        """Return the environment that the stage ends with."""
        for keyword, text in self.stage.instructions:
            match keyword:
                case "RUN":
                    self._run(text)
                case "COPY":
                    self._copy(text)
                case "ENV":
                    self.environment |= assignments(text.replace("$PATH", self.environment["PATH"]))
                case "ARG":
                    name, _, default = text.partition("=")
                    self.environment[name] = self.arguments.get(name, default)
                case "WORKDIR":
                    self.folder = text
                    (self.root / text[1:]).mkdir(parents=True, exist_ok=True)
        return self.environment

    def _run(self, command: str) -> None:
        inside = shlex.join(["env", f"--chdir={self.folder}", "sh", "-euc", command])
        script = f"{_mounts(self.root)}\nexec chroot {self.root} {inside}"
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-euc", script],
            env=NETWORK | self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"

    def _copy(self, text: str) -> None:
        *sources, target = text.split()
        context = ROOT
        if sources[0].startswith("--from="):
            context = self.built[sources.pop(0).removeprefix("--from=")]
        into = self.root / (Path(self.folder) / target).as_posix().lstrip("/")
        for source in sources:
            found = context / source.lstrip("/")
            assert context != ROOT or _in_context(source), f"{source}: .dockerignore leaves it out"
            if found.is_dir():
                shutil.copytree(found, into, symlinks=True, ignore=_ignore, dirs_exist_ok=True)
            else:
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(found, into)


def _ignore(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]


def _in_context(source: str) -> bool:
    return f"!{source}" in (ROOT / ".dockerignore").read_text().splitlines()


def _lay_base(root: Path) -> None:
    """Make the folders of a base image, with users of its own and this Python as `python`."""
    for name in ("usr", "proc", "dev", "opt", "var/lib", "var/spool", "root", str(PYTHON)[1:]):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    here = root / PYTHON_FOLDER[1:] / "python"
    here.parent.mkdir()
    here.symlink_to(PYTHON / "bin" / f"python3.{sys.version_info.minor}")
    for name in SYSTEM:
        here = Path("/", name)
        if here.is_symlink():
            (root / name).symlink_to(here.readlink())
        elif here.exists():
            (root / name).mkdir()
    subprocess.run(["cp", "-a", "/etc", str(root)], check=True)
    for folder in FIND_LINKS:
        (root / str(folder)[1:]).mkdir(parents=True, exist_ok=True)


def _mounts(root: Path) -> str:
    """Return the commands that lay this machine's system into an image's root, to be read only."""
    shown = {Path("/usr"), PYTHON, *FIND_LINKS, *(Path("/", name) for name in SYSTEM)}
    lines = ["mount --make-rprivate /", f"mount --bind {root} {root}"]
    for path in sorted(path for path in shown if path.is_dir() and not path.is_symlink()):
        lines += [f"mount --bind {path} {root}{path}", f"mount -o remount,ro,bind {root}{path}"]
    lines += [f"mount --rbind /{name} {root}/{name}" for name in ("proc", "dev")]
    return "\n".join(lines)
