"""Tells the story of one mismatch many times and how long it took: `make test-alerts`."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from .story import play


def main() -> int:
    """Go through it as often as asked; the first time that it ends otherwise ends all."""
    parser = argparse.ArgumentParser(prog="make test-alerts ARGS=...", description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    times = parser.parse_args().times
    taken = []
    for number in range(times):
        with tempfile.TemporaryDirectory(prefix="rankfold-alerting-") as folder:
            taken.append(play(Path(folder)))
        print(f"{number + 1} of {times}: the webhook knew after {taken[-1]:.2f} s", flush=True)
    print(
        f"passed {times} times in a row; from the mismatch's POST to the webhook, scraped each "
        f"second: median {statistics.median(taken):.2f} s, max {max(taken):.2f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
