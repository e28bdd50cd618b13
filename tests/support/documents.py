"""Documents whose examples are run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(name: str, *languages: str) -> list[tuple[str, str]]:
    """Return a document's code blocks in the languages, in order, each with its language."""
    found = BLOCK.findall((ROOT / name).read_text())
    return [(language, code) for language, code in found if language in languages]
