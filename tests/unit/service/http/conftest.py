"""Fixtures that start an application over the memory store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rankfold.rules import RuleSet
from rankfold_service.http.auth import Tokens
from rankfold_service.settings import Settings
from rankfold_service.store.memory import MemoryStore
from rankfold_service.writer import Writer
from unit.service.http.serving import Service, Start


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a service with these tokens, settings and rules."""
    writers: list[Writer] = []

    def _start(
        tokens: Tokens | None = None,
        settings: Settings | None = None,
        rules: RuleSet | None = None,
    ) -> Service:
        rules = rules or RuleSet()
        writer = Writer(MemoryStore(rules))
        writer.start()
        writers.append(writer)
        return Service(writer, tokens or Tokens(), settings or Settings(), rules)

    yield _start
    for writer in writers:
        writer.close()


@pytest.fixture
def service(start: Start) -> Service:
    """Return a service with default settings."""
    return start()
