"""Bearer tokens: who may write, read and delete, in one project or in all."""

from __future__ import annotations

import hashlib
import hmac
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rankfold.errors import Forbidden, InvalidTokens, Unauthenticated
from rankfold.names import name_fault

Scope = Literal["write", "read", "admin"]
SCOPES: tuple[Scope, ...] = ("write", "read", "admin")

_BEARER = re.compile(r"Bearer +([!-~]+) *", re.IGNORECASE)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Grant:
    """What a request may touch: one project, or all."""

    name: str
    project: str | None = None

    def require(self, project: str | None) -> None:
        """Let through to a project, or with None to what spans all of them.

        Raises:
            Forbidden: the token is for another project.
        """
        if self.project is not None and self.project != project:
            reach = "all projects" if project is None else f"the project {project!r}"
            raise Forbidden(f"the token {self.name!r} is for one project, not for {reach}")


@dataclass(frozen=True)
class Token:
    """One token as the file has it; the secret itself is not kept.

    Attributes:
        name: how logs and refusals call it.
        digest: SHA-256 of the secret.
        scopes: what it is for; `admin` does not imply the others.
        project: the only one that it is for; None for all.
    """

    name: str
    digest: bytes
    scopes: frozenset[str]
    project: str | None = None


@dataclass(frozen=True)
class Tokens:
    """The tokens in force; None: authentication is off and everybody may do everything."""

    known: tuple[Token, ...] | None = None

    def admit(self, authorization: str | None, scope: Scope) -> Grant:
        """Return what a request may touch, from its `Authorization` header.

        Raises:
            Unauthenticated: it carries no token, or one that is not known.
            Forbidden: the token is not for this.
        """
        if self.known is None:
            return Grant("anybody")
        match = _BEARER.fullmatch(authorization or "")
        if match is None:
            raise Unauthenticated("send a token as 'Authorization: Bearer <token>'")
        token = self._find(match[1])
        if token is None:
            raise Unauthenticated("the token is not known")
        if scope not in token.scopes:
            raise Forbidden(f"the token {token.name!r} lacks the scope {scope!r}")
        return Grant(token.name, token.project)

    def _find(self, secret: str) -> Token | None:
        """Return the token of a secret, in a time that does not depend on which it is."""
        digest = hashlib.sha256(secret.encode()).digest()
        found = None
        for token in self.known or ():
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found

    @classmethod
    def load(cls, path: Path) -> Tokens:
        """Return the tokens of a file.

        Raises:
            InvalidTokens: it cannot be read or used.
        """
        try:
            return cls.parse(path.read_text("utf-8"))
        except OSError as error:
            raise InvalidTokens(f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InvalidTokens(f"{path}: not TOML in UTF-8: see byte {error.start}") from error
        except InvalidTokens as error:
            raise InvalidTokens(f"{path}: {error}") from error

    @classmethod
    def parse(cls, text: str) -> Tokens:
        """Return the tokens of a TOML document.

        ```toml
        [[token]]
        name = "trainer"
        sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        scopes = ["write"]
        project = "zero-diff"

        [[token]]
        name = "prometheus"
        token = "the secret itself"
        scopes = ["read"]
        ```

        Raises:
            InvalidTokens: it is not TOML, or an entry is not as above.
        """
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidTokens(f"not TOML: {error}") from error
        unknown = set(document) - {"token"}
        if unknown:
            raise InvalidTokens(f"unknown table {min(unknown)!r}; there are [[token]] only")
        entries = document.get("token")
        if not isinstance(entries, list) or not entries:
            raise InvalidTokens("no [[token]]; without any, nobody could do anything")
        tokens = tuple(_parse_token(number, entry) for number, entry in enumerate(entries, 1))
        _refuse_twice("name", [token.name for token in tokens])
        _refuse_twice("secret", [token.digest for token in tokens])
        return cls(tokens)


def _refuse_twice(what: str, values: list[Any]) -> None:
    if len(set(values)) < len(values):
        raise InvalidTokens(f"two tokens have the same {what}")


def _parse_token(number: int, entry: Any) -> Token:
    where = f"token {number}"
    if not isinstance(entry, dict):
        raise InvalidTokens(f"{where} must be a table: write [[token]]")
    unknown = set(entry) - {"name", "token", "sha256", "scopes", "project"}
    if unknown:
        raise InvalidTokens(f"{where}: unknown member {min(unknown)!r}")
    name = entry.get("name")
    if not isinstance(name, str) or name_fault(name):
        raise InvalidTokens(f"{where} needs a name")
    where = f"{where} ({name})"
    return Token(name, _digest(where, entry), _scopes(where, entry), _project(where, entry))


def _digest(where: str, entry: Mapping[str, Any]) -> bytes:
    secret, sha256 = entry.get("token"), entry.get("sha256")
    if (secret is None) == (sha256 is None):
        raise InvalidTokens(f"{where} needs either token or sha256")
    if secret is None:
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256.lower()):
            raise InvalidTokens(f"{where}: sha256 must be 64 hexadecimal digits")
        return bytes.fromhex(sha256)
    # A header carries nothing else: such a token could never be presented.
    if not isinstance(secret, str) or not re.fullmatch(r"[!-~]+", secret):
        raise InvalidTokens(f"{where}: token must be ASCII without spaces, and not empty")
    return hashlib.sha256(secret.encode()).digest()


def _scopes(where: str, entry: Mapping[str, Any]) -> frozenset[str]:
    scopes: Any = entry.get("scopes")
    listed = isinstance(scopes, list) and len(scopes) > 0
    if not listed or any(scope not in SCOPES for scope in scopes):
        raise InvalidTokens(f"{where}: scopes must be a list of {', '.join(SCOPES)}")
    return frozenset(scopes)


def _project(where: str, entry: Mapping[str, Any]) -> str | None:
    project = entry.get("project")
    if project is None:
        return None
    if not isinstance(project, str) or name_fault(project, in_path=True):
        raise InvalidTokens(f"{where}: project must be a project's name, or left out for all")
    return project
