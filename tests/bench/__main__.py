"""Runs benchmarks, prints their tables and keeps what they saw in bench-results/."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tests.bench import (
    ingest_bench,
    memory_bench,
    parts_bench,
    peers_bench,
    reads_bench,
    replicas_bench,
    scale_bench,
    scrape_bench,
    storage_bench,
)
from tests.bench.processes import RESULTS, machine
from tests.bench.tables import table

Rows = list[dict[str, Any]]


def _reporter(*, quick: bool) -> Rows:
    rows: Rows = import_module("tests.bench.reporter_bench").run(quick=quick)
    return rows


def _compare(*, quick: bool) -> Rows:
    del quick  # it is so anyway
    rows: Rows = import_module("tests.bench.compare_bench").run()
    return rows


BENCHMARKS: dict[str, Callable[..., Rows | dict[str, Rows]]] = {
    "ingest": ingest_bench.run,
    "memory": memory_bench.run,
    "parts": parts_bench.run,
    "peers": peers_bench.run,
    "reads": reads_bench.run,
    "replicas": replicas_bench.run,
    "scale": scale_bench.run,
    "scrape": scrape_bench.run,
    "storage": storage_bench.run,
}
# What can be chosen of the benchmark that is named first.
OPTIONS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "ingest": ingest_bench.add_options,
    "memory": memory_bench.add_options,
    "replicas": replicas_bench.add_options,
    "scale": scale_bench.add_options,
    "scrape": scrape_bench.add_options,
}
if find_spec("tests.bench.compare_bench"):
    BENCHMARKS |= {"compare": _compare, "reporter": _reporter}


def main() -> None:
    """Run the benchmarks that the command line names."""
    args = _arguments()
    options = vars(args)
    names, quick = options.pop("names"), options.pop("quick")
    RESULTS.mkdir(exist_ok=True)
    seen: dict[str, Any] = {"machine": machine(), "options": options}
    print(", ".join(f"{name} {value}" for name, value in seen["machine"].items()))
    for name in names or BENCHMARKS:
        started = time.monotonic()
        chosen = options if [name] == names[:1] else {}
        seen[name] = BENCHMARKS[name](quick=quick, **chosen)
        print(f"\n{name} ({time.monotonic() - started:.0f} s)")
        for title, rows in _tables(seen[name]):
            print(f"\n{title}{table(rows)}", flush=True)
    path = RESULTS / time.strftime("%Y%m%dT%H%M%SZ.json", time.gmtime())
    path.write_text(json.dumps(seen, indent=2) + "\n")
    print(f"\n{path}")


def _tables(seen: Rows | dict[str, Rows]) -> Iterator[tuple[str, Rows]]:
    """Yield the tables of a benchmark, each with its title where there are several."""
    if isinstance(seen, dict):
        yield from ((f"{title}\n\n", rows) for title, rows in seen.items())
    else:
        yield "", seen


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter histories")
    for name in sys.argv[1:2]:
        OPTIONS.get(name, lambda _: None)(parser)
    args = parser.parse_args()
    unknown = sorted(set(args.names) - BENCHMARKS.keys())
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    return args


if __name__ == "__main__":
    main()
