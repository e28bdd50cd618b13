"""The five steps of docs/alerting.md end with a firing alert, run as they stand."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.documents import ROOT, blocks
from support.prometheus import needs_prometheus, program, run
from support.server import free_port

DOCUMENT = "docs/alerting.md"
# The names that the document calls the programs by.
NAMES = {
    "prometheus": "prometheus",
    "promtool": "promtool",
    "amtool": "amtool",
    "alertmanager": "prometheus-alertmanager",
}


def script() -> str:
    """Return the document's steps as one script, with ports that nothing else listens on."""
    steps = [
        f"python - << 'PYTHON'\n{code}PYTHON\n" if language == "python" else code
        for language, code in blocks(DOCUMENT, "sh", "python")
    ]
    text = "\n".join(steps)
    for port in ("9814", "9090", "9093"):
        assert f"127.0.0.1:{port}" in text
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free_port()}")
    return text


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return what the document asks for: a checkout, and the programs on the path."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for ours, theirs in NAMES.items():
        (programs / theirs).symlink_to(program(ours))
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "docker").symlink_to(ROOT / "docker")
    # Whatever environment the tests run in is the checkout's.
    (checkout / ".venv").symlink_to(sys.prefix)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RANKFOLD_")}
    return kept | {"CHECKOUT": str(checkout), "PATH": f"{programs}:{os.environ['PATH']}"}


@needs_prometheus
def test_five_steps_end_with_a_firing_alert(environment: dict[str, str], tmp_path: Path) -> None:
    """Who does what it says sees the alert, and where the worst token was."""
    folder, said = tmp_path / "empty", tmp_path / "said"
    folder.mkdir()
    with said.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script()],
            env=environment,
            cwd=folder,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        code = process.wait(120)
    finally:
        # Where a step failed, what the steps before have started still runs.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        text = said.read_text()
    assert code == 0, text
    assert 'alertname="RankfoldMismatch"' in text
    assert "default/first-alert: mismatch count of training/rollout_logprobs is 1" in text
    assert text.index("SUCCESS") < text.index("RankfoldMismatch") < text.index("ulp")


@needs_prometheus
def test_receivers_of_the_document_fit_the_shipped_file(tmp_path: Path) -> None:
    """Its example of receivers can take the place of those that are shipped."""
    ((_, text),) = blocks(DOCUMENT, "yaml")
    config = yaml.safe_load((ROOT / "docker/alertmanager/alertmanager.yml").read_text())
    names = {receiver["name"] for receiver in config["receivers"]}
    config |= yaml.safe_load(text)
    assert {receiver["name"] for receiver in config["receivers"]} == names
    path = tmp_path / "alertmanager.yml"
    path.write_text(yaml.safe_dump(config))
    done = run("amtool", "check-config", path)
    assert done.returncode == 0, done.stdout + done.stderr
