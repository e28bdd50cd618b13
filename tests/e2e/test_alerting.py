"""One mismatch wakes somebody, through the real programs; `make test-alerts` is the long form."""

from __future__ import annotations

from pathlib import Path

from e2e.alerting.story import play
from support.prometheus import needs_prometheus


@needs_prometheus
def test_one_ulp_at_one_position_wakes_somebody_and_stays(tmp_path: Path) -> None:
    """It is told within two scrapes, once, and outlives failed scrapes and a restart."""
    play(tmp_path)
