"""The images: each Dockerfile is carried out, and what it starts is used as in a container."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from support.container import ROOT, Image, needs_namespaces
from support.reports import partial
from support.server import free_port

SECONDS = 60.0
COMPILERS = ("cc", "gcc", "c++", "g++", "clang", "ld", "rustc", "cargo", "make")
UNWANTED = ("torch", "numpy", "pip", "setuptools", "pytest", "mypy")

pytestmark = [pytest.mark.image, needs_namespaces]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """Yield the image of docker/Dockerfile."""
    folder = tmp_path_factory.mktemp("image")
    yield Image("docker/Dockerfile", folder, {})
    shutil.rmtree(folder)


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Image]:
    """Yield the image of docker/trainer/Dockerfile; TORCH_INDEX says where its torch comes from."""
    arguments = {name: os.environ[name] for name in ("TORCH_INDEX",) if name in os.environ}
    yield Image("docker/trainer/Dockerfile", tmp_path / "image", arguments)
    shutil.rmtree(tmp_path / "image")


@pytest.fixture
def listen() -> dict[str, str]:
    """Return a setting with a port that is free here; containers have ports of their own."""
    return {"RANKFOLD_LISTEN": f"127.0.0.1:{free_port()}"}


@contextmanager
def container(image: Image, listen: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run the image's command until it answers; end it after."""
    process = image.start(image.command(), listen)
    try:
        deadline = time.monotonic() + SECONDS
        while not answers(listen):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.communicate()


def answers(listen: Mapping[str, str]) -> bool:
    """Say whether the aggregator is ready."""
    try:
        return httpx.get(f"{url_of(listen)}/-/ready", trust_env=False).is_success
    except httpx.TransportError:
        return False


def url_of(listen: Mapping[str, str]) -> str:
    """Return the aggregator's address."""
    return f"http://{listen['RANKFOLD_LISTEN']}"


def output(image: Image, environment: Mapping[str, str], *command: str) -> tuple[int, str]:
    """Return how a command in a container ends, and what it prints."""
    process = image.start(command, environment)
    text, _ = process.communicate(timeout=SECONDS)
    return process.returncode, text


def test_image_holds_what_it_needs_and_no_more(image: Image) -> None:
    """No torch, no compiler, no installer, no tests; the packages are the pinned ones."""
    folder = image.root / "opt/rankfold"
    found = {path.name for path in folder.rglob("*")}
    assert not found & {*COMPILERS, *UNWANTED}
    pins = (ROOT / "constraints.txt").read_text().lower().replace("-", "_").splitlines()
    installed = {path.name for path in folder.rglob("*.dist-info")}
    assert {"rankfold", "fastapi"} <= {name.partition("-")[0] for name in installed}
    for name in installed:
        package, version = name.removesuffix(".dist-info").split("-", 1)
        assert package == "rankfold" or f"{package.lower()}=={version}" in pins


def test_container_is_not_root_and_cannot_write_beside_its_volume(image: Image) -> None:
    """It runs as another user, without capabilities, on a root that is read-only."""
    code, text = output(image, {}, "python", "-c", WHO_AM_I)
    assert code == 0, text
    assert json.loads(text) == {
        "ids": [10001, 10001, 10001, 10001],
        "groups": [],
        "capabilities": "0000000000000000",
        "no new privileges": "1",
        "refused": ["/opt/rankfold", "/etc", "/var/lib", "/"],
        "taken": ["/var/lib/rankfold", "/tmp"],  # noqa: S108 - a folder of the container
    }
    mode = image.volume.stat()
    assert (mode.st_uid, mode.st_gid, stat.S_IMODE(mode.st_mode)) == (10001, 10001, 0o750)


WHO_AM_I = """
import json, os, pathlib, re
def taken(folder):
    try:
        (pathlib.Path(folder) / "x").write_text("x")
    except OSError:
        return False
    (pathlib.Path(folder) / "x").unlink()
    return True
status = pathlib.Path("/proc/self/status").read_text()
field = lambda name: re.search(rf"^{name}:\\t(.*)$", status, re.M)[1]
folders = ["/opt/rankfold", "/etc", "/var/lib", "/", "/var/lib/rankfold", "/tmp"]
print(json.dumps({
    "ids": [os.getuid(), os.geteuid(), os.getgid(), os.getegid()], "groups": os.getgroups(),
    "capabilities": field("CapEff"), "no new privileges": field("NoNewPrivs"),
    "refused": [f for f in folders if not taken(f)], "taken": [f for f in folders if taken(f)],
}))
"""


def test_container_keeps_its_runs_and_stops_when_told_to(
    image: Image, listen: dict[str, str]
) -> None:
    """SIGTERM ends it with 0; a new container on the volume has what the old one acknowledged."""
    report = {"run": "image", "rank": 0, "world_size": 1, "partials": [partial()]}
    commits = [{"iteration": 0, "microbatches": 1}]
    with container(image, listen) as process:
        answer = httpx.post(
            f"{url_of(listen)}/api/v1/partials", json={**report, "commits": commits}
        )
        assert answer.json() == {"accepted": 1, "duplicates": 0, "conflicts": 0}
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, text
    with container(image, listen):
        gate = ["rankfold", "gate", "image", "--url", url_of(listen), "--json"]
        code, text = output(image, {}, *gate)
        assert (code, json.loads(text)["gate"]) == (0, "pass")


def test_health_check_tells_a_live_container_from_a_dead_one(
    image: Image, listen: dict[str, str]
) -> None:
    """The image's own health check, as an engine runs it."""
    check = image.stage.command("HEALTHCHECK")
    with container(image, listen):
        assert output(image, listen, *check) == (0, "")
        for other in ("0.0.0.0:", "[::]:"):
            port = listen["RANKFOLD_LISTEN"].rpartition(":")[2]
            code, _ = output(image, {"RANKFOLD_LISTEN": other + port}, *check)
            assert code == (0 if other == "0.0.0.0:" else 1)
    code, text = output(image, listen, *check)
    assert code == 1
    assert re.search("refused", text)


def test_image_listens_on_every_address_of_its_container(image: Image) -> None:
    """A published port leads to it, and the store lies on the volume."""
    assert image.environment["RANKFOLD_LISTEN"] == f"0.0.0.0:{image.stage.last('EXPOSE')}"
    store = image.environment["RANKFOLD_STORE"].removeprefix("sqlite:///")
    assert Path(store).parent == Path(image.stage.last("VOLUME"))


def test_example_trainer_reports_to_the_aggregator(
    image: Image, trainer: Image, listen: dict[str, str]
) -> None:
    """Its training job runs as another user on a read-only root, and its run is complete."""
    assert not {path.name for path in trainer.root.rglob("*")} & {"fastapi", "uvicorn"}
    command = [word.replace("http://aggregator:9814", url_of(listen)) for word in trainer.command()]
    assert url_of(listen) in command
    with container(image, listen):
        code, text = output(trainer, {}, *command, "--iterations", "1", "--exact")
        assert code == 0, text
        gate = ["rankfold", "gate", "example", "--project", "demo", "--url", url_of(listen)]
        code, text = output(image, {}, *gate)
        assert code == 0, text
