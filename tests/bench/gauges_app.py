"""The gauges of a scrape, held and exposed as Prometheus' own client library does it."""

from __future__ import annotations

import sys
from pathlib import Path

import uvicorn
from prometheus_client import CollectorRegistry, Gauge, make_asgi_app
from prometheus_client.parser import text_string_to_metric_families


def held(text: str) -> CollectorRegistry:
    """Return a registry with the gauges of runs that a scrape in text has."""
    registry = CollectorRegistry()
    for family in text_string_to_metric_families(text):
        samples = [sample for sample in family.samples if "run" in sample.labels]
        if samples:
            gauge = Gauge(
                family.name, family.documentation, [*samples[0].labels], registry=registry
            )
            for sample in samples:
                gauge.labels(**sample.labels).set(sample.value)
    return registry


def serve(port: str, scrape: str) -> None:
    """Expose the gauges of a file; any path answers."""
    app = make_asgi_app(held(Path(scrape).read_text()), disable_compression=True)
    uvicorn.run(app, port=int(port), loop="uvloop", http="httptools", log_level="warning")


if __name__ == "__main__":
    serve(*sys.argv[1:])
