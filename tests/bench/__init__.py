"""Benchmarks: ratios and medians of interleaved runs; `python -m tests.bench --help`."""
