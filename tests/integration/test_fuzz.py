"""The API fuzzed from its own description: nothing that can be sent makes it answer 5xx."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.server import Server

# JSON Schema takes 5.0 for an integer and cannot say that count <= valid: what it allows may be
# refused with 422, so that one check of the tool does not apply.
EXCLUDED = "positive_data_acceptance"


def test_api_withstands_its_own_description(durable: Server, tmp_path: Path) -> None:
    """Every operation keeps to its description, and a scrape works afterwards."""
    answer = durable.report(
        run="r",
        rank=0,
        world_size=1,
        partials=[
            {
                **{"series": "s", "iteration": 0, "microbatch": 0},
                **{"count": 1, "max": 0.5, "sum": 0.5, "valid": 8},
            }
        ],
        commits=[{"iteration": 0, "microbatches": 1}],
    )
    assert answer.status_code == 200
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{durable.url}/openapi.json"),
        *("--checks", "all", "--exclude-checks", EXCLUDED, "--max-examples", "25"),
        *("--suppress-health-check", "all", "--no-color", "--continue-on-failure"),
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    for accept in ("text/plain", "application/openmetrics-text"):
        assert durable.client.get("/metrics", headers={"accept": accept}).status_code == 200
    assert durable.client.get("/-/ready").status_code == 200
