"""Real aggregators, one for each store, shared by the tests of a module."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.server import Server

_numbers = itertools.count()


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Yield a running aggregator on each kind of store."""
    folder = tmp_path_factory.mktemp("store")
    store = "memory://" if request.param == "memory" else f"sqlite:///{folder}/rankfold.db"
    with Server(store) as running:
        yield running


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Server]:
    """Yield a running aggregator on a SQLite file of its own."""
    with Server(f"sqlite:///{tmp_path}/rankfold.db") as running:
        yield running


@pytest.fixture
def run() -> str:
    """Return the name of a run that no other test uses."""
    return f"run-{next(_numbers)}"
