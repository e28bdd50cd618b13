"""What holds for every test: hypothesis judges answers, never the speed of a busy machine."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "rankfold",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    # Where a change is judged, the examples are the same each time; elsewhere they explore.
    derandomize="CI" in os.environ,
)
settings.load_profile("rankfold")
