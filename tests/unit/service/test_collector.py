"""What the collector looks at, in an interpreter of its own, for it is one for all of a process."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
import weakref

from rankfold_service import collector


class Thing:
    pass


def garbage():
    thing = Thing()
    thing.itself = thing
    return weakref.ref(thing)


kept = [[number] for number in range(100_000)]
early = garbage()
collector.begin()
assert early() is None
assert gc.get_count()[0] < 100, gc.get_count()
assert not any(item is kept for item in gc.get_objects())

late = garbage()
kept += [[number] for number in range(10_000)]
assert any(item is kept[-1] for item in gc.get_objects())
collector.set_aside()
assert not any(item is kept[-1] for item in gc.get_objects())
gc.collect()
assert late() is not None  # set aside with the rest

freed = weakref.WeakSet([Thing() for _ in range(10)])
collector.set_aside()
assert not freed  # what nobody holds needs no collector

collector.look_at_all()
assert late() is None
assert not any(item is kept for item in gc.get_objects())
print("ok")
"""


def test_collector_sets_aside_what_is_there_and_looks_at_all_when_told() -> None:
    """What is set aside is freed by who lets go of it; only cycles wait for the look at all."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("ok\n", "")
