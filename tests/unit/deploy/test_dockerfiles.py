"""The Dockerfiles, read: linted, pinned, not root. `make test-image` carries them out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.dockerfile import Stage, assignments, stages
from unit.deploy.files import DOCKER, PINNED, ROOT, VERSION, unknown

DOCKERFILES = [DOCKER / "Dockerfile", DOCKER / "trainer/Dockerfile"]
HADOLINT = Path(sys.executable).with_name("hadolint")

every = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)


def environment(stage: Stage) -> dict[str, str]:
    """Return what a stage's ENV instructions set."""
    found: dict[str, str] = {}
    for keyword, text in stage.instructions:
        if keyword == "ENV":
            found |= assignments(text)
    return found


@every
def test_dockerfile_is_linted(path: Path) -> None:
    """Hadolint has nothing to say."""
    done = subprocess.run([HADOLINT, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@every
def test_image_is_built_apart_from_a_pinned_base(path: Path) -> None:
    """Two stages begin with one base of an exact version; the second only copies from the first."""
    first, last = stages(path)
    assert first.base == last.base
    assert PINNED.fullmatch(first.base)
    assert "slim" in first.base
    assert not [text for word, text in last.instructions if word == "RUN" and "pip" in text]


@every
def test_image_runs_as_a_user_by_number(path: Path) -> None:
    """Kubernetes cannot tell whether a name is root."""
    last = stages(path)[-1]
    user, group = last.last("USER").split(":")
    assert int(user) == int(group) > 1000
    assert f"--uid {user} " in last.last("RUN")
    assert last.command("ENTRYPOINT")
    assert last.command("CMD")


@every
def test_image_says_its_version(path: Path) -> None:
    """The label is the version in pyproject.toml."""
    label = assignments(stages(path)[-1].last("LABEL"))
    assert label["org.opencontainers.image.version"] == VERSION


def test_settings_in_images_exist() -> None:
    """A variable of the aggregator's image is one of its settings."""
    assert unknown(environment(stages(DOCKERFILES[0])[-1])) == set()


@every
def test_context_holds_what_is_copied(path: Path) -> None:
    """`.dockerignore` lets through what is copied, all of which exists, and nothing else."""
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    assert all((ROOT / name).exists() for name in allowed)
    for stage in stages(path):
        for keyword, text in stage.instructions:
            if keyword == "COPY" and not text.startswith("--from="):
                assert set(text.split()[:-1]) <= allowed
