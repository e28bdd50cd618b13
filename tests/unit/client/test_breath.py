from __future__ import annotations

from rankfold_client.breath import BURST, PAUSE, Breath
from unit.client.fakes import Clock


def test_breath_pauses_after_each_burst_of_work() -> None:
    """Short pieces go on together, and a pause starts the next burst."""
    clock, slept = Clock(0.0), list[float]()
    breath = Breath(clock, slept.append)
    for _ in range(4):
        breath()
    assert slept == []
    clock.now += BURST
    breath()
    breath()
    assert slept == [PAUSE]
