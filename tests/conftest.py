"""What holds for every test: hypothesis judges answers, never the speed of a busy machine.

And what many tests share: one PostgreSQL for each process of tests. Programs that they start can be
interrupted, however the tests themselves were started.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from support.postgres import Postgres

settings.register_profile(
    "rankfold",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    # Where a change is judged, the examples are the same each time; elsewhere they explore.
    derandomize="CI" in os.environ,
)
settings.load_profile("rankfold")

# A shell without job control has what it starts with & ignore interrupts, and all that this starts:
# who presses Ctrl-C in a test would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Yield a PostgreSQL; each test makes a database of its own in it, and leaves it running."""
    with Postgres(fsync="off") as running:
        yield running
