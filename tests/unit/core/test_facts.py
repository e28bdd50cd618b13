"""What is known of a run as a whole: learned once, checked before anything is changed."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings

from rankfold.errors import NotFound, RequestError
from rankfold.facts import Facts
from rankfold.rules import RuleSet
from rankfold.wire import MAX_META, Report
from unit.core.builders import SERIES, partial, report
from unit.core.worlds import Parts, one_report, worlds


def learned(*reports: Report) -> Facts:
    """Return what these reports say of their run."""
    facts = Facts(RuleSet())
    for each in reports:
        facts.learn(each, min(each.iterations(), default=None), 1.0)
    return facts


@settings(max_examples=200, deadline=None)
@given(worlds(contradictory=True))
def test_facts_know_exactly_what_they_would_not_learn_from(parts: list[Parts]) -> None:
    """`know` says no where, and only where, learning changes something."""
    facts = Facts(RuleSet())
    for part in [*parts, *parts]:
        sent = one_report(*part)
        lowest = min(sent.iterations(), default=None)
        try:
            facts.check(sent)
        except RequestError:
            continue
        before, known = copy.deepcopy(facts), facts.know(sent, lowest)
        facts.learn(sent, lowest, 2.0)
        assert known is (facts == before)


def test_facts_keep_the_first_meta_of_each_name_up_to_a_limit() -> None:
    """The first value of a name stays, and no more than the limit are kept."""
    more = report(1, meta={"dtype": "fp32", **{f"n{i}": "x" for i in range(MAX_META)}})
    facts = learned(report(1, meta={"dtype": "bf16"}))
    assert not facts.know(more, None)
    facts.learn(more, None, 1.0)
    assert facts.launches[0].meta == {
        "dtype": "bf16",
        **{f"n{i}": "x" for i in range(MAX_META - 1)},
    }
    assert facts.know(more, None)


def test_facts_say_when_an_attempt_begins_lower() -> None:
    """Only a lower first iteration is news, and it moves where earlier attempts are cut."""
    facts = learned(report(partials=[partial(3)]))
    later = [report(attempt=1, partials=[partial(i)]) for i in (5, 7, 2)]
    news = [facts.learn(each, min(each.iterations()), 1.0) for each in later]
    assert (news, facts.cut(0), facts.cut(1)) == ([True, False, True], 2, None)
    assert facts.launches[1].first_iteration == 2
    assert facts.series == {SERIES}


def test_facts_finish_only_what_has_reported() -> None:
    """An attempt that nobody reported to cannot be over."""
    facts = learned(report())
    facts.finish(0, "run")
    assert facts.launches[0].finished
    with pytest.raises(NotFound, match="run 'run' has no attempt 1"):
        facts.finish(1, "run")
