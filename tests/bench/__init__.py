"""Benchmarks: ratios and medians of interleaved runs; `python -m tests.bench --help`."""

import sys
from pathlib import Path

# What tests share is called `support` there, as pytest has it.
sys.path.insert(0, str(Path(__file__).parents[1]))
