from __future__ import annotations

import pytest

from rankfold_client.complaints import FAILED, SILENCE, Complaints
from unit.client.fakes import Clock


def test_complaints_sum_up_what_happened_while_silent(caplog: pytest.LogCaptureFixture) -> None:
    """The first line comes at once, the next a minute later with all counts of that minute."""
    clock = Clock()
    complaints = Complaints("rank 0", clock)
    complaints.speak(5)
    complaints.note("lost", 1, "first")
    complaints.speak(4)
    for reason in ("second", "third"):
        clock.now += SILENCE / 2 - 1
        complaints.note("lost", 2, reason)
        complaints.speak(3)
    clock.now += 2
    complaints.speak(2)
    complaints.speak(1)
    assert [record.getMessage() for record in caplog.records] == [
        "rank 0: 1 lost (first); 4 items wait",
        "rank 0: 4 lost (third); 2 items wait",
    ]


def test_complaints_have_a_last_word(caplog: pytest.LogCaptureFixture) -> None:
    """At the end what was noted is told at once, unless it came to nothing."""
    complaints = Complaints("rank 0", Clock())
    for what, waiting in (("lost", 0), ("lost", 1), (FAILED, 0), (FAILED, 1)):
        complaints.note(what, 1, "why")
        complaints.speak(waiting, last=True)
    complaints.speak(1, last=True)
    assert [record.getMessage() for record in caplog.records] == [
        "rank 0: 1 lost (why); 0 items wait",
        "rank 0: 1 lost (why); 1 item waits",
        "rank 0: 2 tries failed (why); 1 item waits",
    ]
