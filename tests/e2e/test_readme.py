"""The README's examples do what it says, run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankfold.rules import Rule, RuleSet
from rankfold_service.http.auth import Tokens
from support.documents import ROOT, blocks
from support.server import Server

README = "README.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield the aggregator that the examples talk to."""
    with Server(f"sqlite:///{tmp_path_factory.mktemp('readme')}/rankfold.db") as running:
        yield running


def test_readme_examples_run_in_order(server: Server, tmp_path: Path) -> None:
    """The trainer's example reports, and the shell's examples read it and report by hand."""
    environment = {
        **os.environ,
        "RANKFOLD_URL": server.url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    ((_, example),) = blocks(README, "python")
    subprocess.run([sys.executable, "-c", example], env=environment, check=True, timeout=120)
    script = "\n".join(code for _, code in blocks(README, "sh")).replace(
        "http://127.0.0.1:9814", server.url
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pass" in done.stdout
    assert '{"accepted":1,"duplicates":0,"conflicts":0}' in done.stdout
    totals = server.get("qwen3-8b-zero-diff", "totals")["keys"]
    assert totals["training/rollout_logprobs_valid_count"]["value"] == 12
    assert totals["actor/pg_loss/mean"]["value"] == 0.25
    assert server.get("qwen3-8b-zero-diff", "")["state"] == "finished"


def test_readme_rules_and_tokens_are_taken(tmp_path: Path) -> None:
    """The two files that the README shows can be used as they stand."""
    (_, rules), (_, tokens) = blocks(README, "toml")
    parsed = RuleSet.parse(rules)
    assert parsed.scalar_rule("actor/loss") is Rule.MEAN
    suffixes = [key.suffix for key in parsed.keys_of("training/x")]
    assert "mismatch_share" in suffixes
    assert "diff_std" not in suffixes
    path = tmp_path / "tokens.toml"
    path.write_text(tokens)
    Tokens.load(path)


def test_readme_names_only_make_targets_that_exist() -> None:
    """Every `make` target that it mentions is in the Makefile."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"[`$] ?make ([a-z][a-z0-9-]*)", (ROOT / README).read_text())) <= targets
