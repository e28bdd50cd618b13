"""Settings come from flags, then from the environment, then from one place of defaults."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from rankfold.errors import ConfigurationError
from rankfold_service.settings import Settings, add_settings, read_settings


def read(*flags: str, environ: Mapping[str, str] | None = None) -> Settings:
    """Read settings from these flags and this environment."""
    parser = argparse.ArgumentParser()
    add_settings(parser)
    return read_settings(parser.parse_args(flags), environ or {})


def test_settings_have_defaults() -> None:
    """Nothing has to be set."""
    assert read() == Settings()
    assert (Settings().host, Settings().port) == ("127.0.0.1", 9814)


def test_settings_are_read_from_flags() -> None:
    """A flag is named like its setting."""
    got = read(
        "--listen", "[::]:0", "--stale-after", "1.5", "--rules", "r.toml", "--max-items", "7"
    )
    assert got == Settings(listen="[::]:0", stale_after=1.5, rules=Path("r.toml"), max_items=7)
    assert (got.host, got.port) == ("::", 0)


def test_settings_are_read_from_the_environment() -> None:
    """A variable is named like its setting; a flag wins over it, and an empty one is none."""
    environ = {"RANKFOLD_MAX_BODY": "9", "RANKFOLD_LOG_FORMAT": "TEXT", "RANKFOLD_STORE": ""}
    assert read(environ=environ) == Settings(max_body=9, log_format="text")
    assert read("--max-body", "8", environ=environ).max_body == 8


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("listen", "9814"),
        ("listen", "localhost:"),
        ("listen", ":9814"),
        ("listen", "localhost:70000"),
        ("store", "rankfold.db"),
        ("stale_after", "soon"),
        ("stale_after", "nan"),
        ("stale_after", "-1"),
        ("max_body", "0"),
        ("max_items", "1.5"),
        ("log_level", "loud"),
    ],
)
def test_settings_that_cannot_be_used_are_named(name: str, text: str) -> None:
    """A bad value is refused by the name under which it was given, with what it must be."""
    flag = f"--{name.replace('_', '-')}"
    with pytest.raises(ConfigurationError, match=rf"^{flag}: must .*{re.escape(repr(text))}"):
        read(f"{flag}={text}")
    variable = f"RANKFOLD_{name.upper()}"
    with pytest.raises(ConfigurationError, match=f"^{variable}: must"):
        read(environ={variable: text})


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("retain_age", "1d", "--retain-age: must be a number of seconds, not '1d'"),
        ("retain_bytes", "10G", "--retain-bytes: must be a number of bytes, not '10G'"),
        ("queue_limit", "1k", "--queue-limit: must be a number, not '1k'"),
    ],
)
def test_settings_tell_their_unit(name: str, text: str, told: str) -> None:
    """Who writes another unit is told which one is meant."""
    with pytest.raises(ConfigurationError) as caught:
        read_settings(argparse.Namespace(**{name: text}), {})
    assert str(caught.value) == told


def test_settings_are_all_explained() -> None:
    """The help shows every setting with its variable."""
    parser = argparse.ArgumentParser()
    add_settings(parser)
    text = parser.format_help()
    for setting in fields(Settings):
        assert setting.metadata["help"]
        assert f"RANKFOLD_{setting.name.upper()}" in text
