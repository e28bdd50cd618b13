"""A Dockerfile as what it says: stages of instructions."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Stage:
    """A stage: what it begins with, its name, its instructions in order."""

    base: str
    name: str | None
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def last(self, keyword: str) -> str:
        """Return the arguments of the last instruction of a kind, the one that has an effect."""
        return next(text for word, text in reversed(self.instructions) if word == keyword)

    def command(self, keyword: str) -> list[str]:
        """Return what such an instruction runs, which is written as JSON."""
        text = self.last(keyword)
        command: list[str] = json.loads(text[text.index("[") :])
        return command


def stages(path: Path) -> list[Stage]:
    """Return the stages of a Dockerfile."""
    found: list[Stage] = []
    for keyword, text in _instructions(path.read_text()):
        if keyword == "FROM":
            match = re.fullmatch(r"(\S+)(?: AS (\S+))?", text)
            assert match is not None, text
            found.append(Stage(match[1], match[2]))
        else:
            found[-1].instructions.append((keyword, text))
    return found


def assignments(text: str) -> dict[str, str]:
    """Return what an ENV or LABEL sets."""
    return dict(word.split("=", 1) for word in shlex.split(text))


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        keyword, _, rest = line.strip().partition(" ")
        if keyword:
            yield keyword, rest.strip()
