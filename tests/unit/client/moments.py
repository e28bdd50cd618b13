"""Calls something at each moment of a call at which Python would run a signal's handler."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import rankfold_client

# After these, and after none else, Python looks whether a signal came.
LOOKS = frozenset({"CALL", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"})
# What is raised after a call counts as raised by it, which only Python can do; the entry of a
# function is the same to who called it.
ENTRIES = frozenset({"RESUME"})
OURS = str(Path(rankfold_client.__file__).parent)


@cache
def _moments(code: CodeType, after: frozenset[str]) -> frozenset[int]:
    """Return the offsets of the instructions that come after some."""
    names = [(each.offset, each.opname) for each in dis.get_instructions(code)]
    return frozenset(offset for (_, before), (offset, _) in pairwise(names) if before in after)


def interrupted(
    call: Callable[[], object],
    handler: Callable[[], object],
    moment: int,
    after: frozenset[str] = LOOKS,
) -> bool:
    """Call something, and at its n-th moment, counted from 0, a handler; say whether there was one.

    Moments are counted in this thread, in the client and in the locks that it waits for.
    """
    passed = 0

    def look(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal passed
        if event == "opcode" and frame.f_lasti in _moments(frame.f_code, after):
            passed += 1
            if passed == moment + 1:
                sys.settrace(None)
                handler()
        return look

    def enter(frame: FrameType, _event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not (name.startswith(OURS) or name.endswith("threading.py")):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return look

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        call()
    finally:
        sys.settrace(before)
    return passed > moment
