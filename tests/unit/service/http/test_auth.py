"""Tokens open exactly what their file says."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rankfold.errors import Forbidden, InvalidTokens, Unauthenticated
from rankfold_service.http.auth import SCOPES, Grant, Tokens

DIGEST = hashlib.sha256(b"w").hexdigest()
FILE = f"""
[[token]]
name = "trainer"
sha256 = "{DIGEST.upper()}"
scopes = ["write"]
project = "p"

[[token]]
name = "reader"
token = "r"
scopes = ["read", "admin"]
"""
TOKENS = Tokens.parse(FILE)


def test_admit_returns_what_a_token_reaches() -> None:
    """A token is known by its secret or by the secret's digest."""
    assert TOKENS.admit("Bearer w", "write") == Grant("trainer", "p")
    assert TOKENS.admit("bearer  r ", "read") == Grant("reader", None)


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer ", "Basic dzp3", "w", "Bearer w x", "Bearer ü"]
)
def test_admit_asks_who_sends_no_token(authorization: str | None) -> None:
    """Without a bearer token nobody is let in."""
    with pytest.raises(Unauthenticated):
        TOKENS.admit(authorization, "read")


def test_admit_refuses_what_it_does_not_know() -> None:
    """An unknown token is not told from none; neither is a digest that is sent as a secret."""
    for secret in ("x", "W", "ww", DIGEST):
        with pytest.raises(Unauthenticated):
            TOKENS.admit(f"Bearer {secret}", "write")


def test_admit_refuses_another_scope() -> None:
    """No scope implies another, not even `admin`."""
    with pytest.raises(Forbidden, match="'trainer' lacks the scope 'read'"):
        TOKENS.admit("Bearer w", "read")
    with pytest.raises(Forbidden):
        TOKENS.admit("Bearer r", "write")


def test_grant_requires_its_project() -> None:
    """A token for one project reaches neither another nor all."""
    Grant("t", "p").require("p")
    Grant("t").require("q")
    Grant("t").require(None)
    for project in ("q", None):
        with pytest.raises(Forbidden):
            Grant("t", "p").require(project)


@pytest.mark.parametrize("scope", SCOPES)
def test_admit_lets_everybody_in_without_a_file(scope: str) -> None:
    """Without a tokens file authentication is off, for deleting too."""
    assert Tokens().admit(None, scope).project is None  # type: ignore[arg-type]


GOOD = 'name="a"\ntoken="s"\nscopes=["read"]\n'
OTHER_SECRET = GOOD.replace('"s"', '"t"')
OTHER_NAME = GOOD.replace('"a"', '"b"')
INVALID = {
    "not TOML": ("[", "not TOML"),
    "nothing": ("", r"no \[\[token\]\]"),
    "a table instead of an array": (f"[token]\n{GOOD}", r"no \[\[token\]\]"),
    "numbers": ("token = [1]", "must be a table"),
    "another table": (f"[[token]]\n{GOOD}\n[tokens]\n", "unknown table 'tokens'"),
    "no name": ('[[token]]\ntoken="s"\nscopes=["read"]', "token 1 needs a name"),
    "an unknown member": (f"[[token]]\n{GOOD}scope='read'", "unknown member 'scope'"),
    "no secret": ('[[token]]\nname="a"\nscopes=["read"]', "either token or sha256"),
    "two secrets": (f'[[token]]\n{GOOD}sha256="{DIGEST}"', "either token or sha256"),
    "a short digest": ('[[token]]\nname="a"\nsha256="ab"\nscopes=["read"]', "64 hexadecimal"),
    "an empty secret": ('[[token]]\nname="a"\ntoken=""\nscopes=["read"]', "ASCII without"),
    "a secret with a space": ('[[token]]\nname="a"\ntoken="a b"\nscopes=["read"]', "ASCII"),
    "no scopes": ('[[token]]\nname="a"\ntoken="s"', "scopes must be"),
    "empty scopes": ('[[token]]\nname="a"\ntoken="s"\nscopes=[]', "scopes must be"),
    "an unknown scope": ('[[token]]\nname="a"\ntoken="s"\nscopes=["root"]', "scopes must be"),
    "a scope that is a list": ('[[token]]\nname="a"\ntoken="s"\nscopes=[["read"]]', "scopes"),
    "a bad project": (f'[[token]]\n{GOOD}project="a/b"', "project must be"),
    "one name twice": (f"[[token]]\n{GOOD}[[token]]\n{OTHER_SECRET}", "the same name"),
    "one secret twice": (f"[[token]]\n{GOOD}[[token]]\n{OTHER_NAME}", "the same secret"),
}


@pytest.mark.parametrize(("text", "message"), INVALID.values(), ids=INVALID)
def test_parse_refuses_a_file_that_is_not_right(text: str, message: str) -> None:
    """A mistake in the file stops the start and says where it is, and never a secret."""
    with pytest.raises(InvalidTokens, match=message):
        Tokens.parse(text)


def test_load_names_the_file(tmp_path: Path) -> None:
    """Whoever starts the aggregator is told which file is wrong."""
    path = tmp_path / "tokens.toml"
    with pytest.raises(InvalidTokens, match=r"tokens\.toml"):
        Tokens.load(path)
    path.write_text("[")
    with pytest.raises(InvalidTokens, match=r"tokens\.toml: not TOML"):
        Tokens.load(path)
    path.write_bytes(b"# gr\xfcn")
    with pytest.raises(InvalidTokens, match=r"tokens\.toml: not TOML in UTF-8: see byte 4"):
        Tokens.load(path)
    path.write_text(FILE)
    assert Tokens.load(path) == TOKENS
