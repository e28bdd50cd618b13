"""docker/README.md: the tokens that it makes are taken, and the files that it names exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import httpx

from support.documents import ROOT, blocks
from support.reports import partial
from support.server import Server

README = "docker/README.md"


def test_tokens_are_made_as_the_readme_says(tmp_path: Path) -> None:
    """Trainers may write, Prometheus may scrape, operators both; nobody else anything."""
    ((_, script),) = blocks(README, "sh")
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, check=True)
    tokens = {path.stem: path.read_text() for path in tmp_path.glob("*.token")}
    report = {"run": "tokens", "rank": 0, "world_size": 1, "partials": [partial()]}
    with Server("memory://", "--tokens", str(tmp_path / "tokens.toml")) as server:
        for name, may_write, may_read in (
            ("trainers", 200, 403),
            ("prometheus", 403, 200),
            ("operators", 200, 200),
            (None, 401, 401),
        ):
            headers = {"Authorization": f"Bearer {tokens[name]}"} if name else {}
            with httpx.Client(base_url=server.url, headers=headers, timeout=20) as client:
                assert client.post("/api/v1/partials", json=report).status_code == may_write
                assert client.get("/metrics").status_code == may_read


def test_readme_names_what_exists() -> None:
    """Each path and each make target in it is there."""
    text = (ROOT / README).read_text()
    paths = re.findall(r"`((?:docker|docs|kubernetes|grafana|rankfold_deploy)/[\w./*-]+)`", text)
    assert len(paths) > 5
    for path in paths:
        places = (ROOT, ROOT / "docker")
        assert any(list(place.glob(path)) for place in places), path
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
