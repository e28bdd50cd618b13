"""What a scrape gets: the gauges, their formats, and how a rendering is kept and shared."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterable, Mapping, ValuesView

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from rankfold.gate import Gate
from rankfold.ledger import Ledger
from rankfold.names import name_fault
from rankfold.rules import Rule, RuleSet
from rankfold_service.exposition import OPENMETRICS, TEXT, Exposition, negotiate
from rankfold_service.gauges import FAMILIES
from rankfold_service.judge import RunSnapshot
from rankfold_service.lines import Lines
from rankfold_service.store import Name
from rankfold_service.telemetry import Telemetry
from support.gauges import Gauges, lines_of
from unit.service.snapshots import SERIES, compared, new_ledger, scalar, snapshot_of, tell

Values = dict[tuple[str, ...], float]

ACCEPTS = {"text": None, "openmetrics": "application/openmetrics-text; version=1.0.0"}
PARSERS: dict[str, Callable[[str], Iterable[Metric]]] = {
    "text": parse_text,
    "openmetrics": parse_openmetrics,
}
FORMATS = list(ACCEPTS)

both_formats = pytest.mark.parametrize("form", FORMATS)


class Runs:
    """A source of lines that counts how often it was asked, and fails when it is told to."""

    def __init__(self, *runs: RunSnapshot) -> None:
        self.asked = 0
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.lines = {(run.project, run.run): lines_of(run) for run in runs}

    async def __call__(self) -> Mapping[Name, Lines]:
        """Return the lines of now, once the gate is open."""
        self.asked += 1
        lines = self.lines
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return lines


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time that it was set to."""
        return self.now


def scrape(form: str, *runs: RunSnapshot) -> str:
    """Return the text of a scrape of these runs."""
    body, _ = asyncio.run(Exposition(Runs(*runs), Telemetry()).render(ACCEPTS[form]))
    return body.decode()


def samples(families: Iterable[Metric]) -> Values:
    """Return the samples of runs by name and label values, the labels ordered by name."""
    found: Values = {}
    for family in families:
        for sample in family.samples:
            if "run" in sample.labels:
                labels = (sample.labels[name] for name in sorted(sample.labels))
                found[sample.name, *labels] = sample.value
    return found


def values(form: str, text: str) -> Values:
    """Return the samples of runs in a scrape's text."""
    return samples(PARSERS[form](text))


def of_runs(*runs: RunSnapshot) -> Values:
    """Return the samples of runs without going through a format."""
    return samples(Gauges(*runs).collect())


def gate(verdict: str, project: str = "default", run: str = "r1") -> Values:
    """Return the samples of a run's verdict."""
    return {("rankfold_gate", project, run, word): float(word == verdict) for word in Gate}


def only(found: Values, *names: str) -> Values:
    """Return the samples of some families."""
    return {labels: value for labels, value in found.items() if labels[0] in names}


def busy_ledger() -> Ledger:
    """Return a run of two ranks: iteration 3 complete with one mismatch, iteration 4 begun."""
    ledger = new_ledger()
    loss = scalar("actor/loss", 0.5, Rule.MEAN, iteration=3, weight=2)
    one = compared(3, count=1, largest=0.25, sum_=0.25, sum_sq=0.0625)
    tell(ledger, one, loss, world_size=2, commit=3)
    tell(ledger, compared(3, sum_sq=0.0), rank=1, commit=3)
    reward = scalar("reward", -1.0, Rule.LAST, iteration=4)
    tell(ledger, compared(4, valid=4), reward, now=1234.5)
    return ledger


def test_gauges_give_every_figure_of_a_run() -> None:
    """Every family of the contract is there, with the labels and the values it says."""

    def key(ending: str) -> tuple[str, str, str]:
        return (f"{SERIES}_{ending}", "default", "r1")

    run = ("default", "r1")
    assert of_runs(snapshot_of(busy_ledger())) == {
        ("rankfold_sum_value", *key("mismatch_count")): 1,
        ("rankfold_sum_value", *key("valid_count")): 20,
        ("rankfold_sum_value", *key("nonfinite_count")): 0,
        ("rankfold_max_value", *key("diff_max")): 0.25,
        ("rankfold_mean_value", *key("diff_mean")): 0.0125,
        ("rankfold_mean_value", "actor/loss", *run): 0.5,
        ("rankfold_last_value", "reward", *run): -1.0,
        ("rankfold_std_value", *key("diff_std")): math.sqrt(0.0625 / 16 - (0.25 / 16) ** 2),
        ("rankfold_iteration_sum_value", *key("mismatch_count")): 1,
        ("rankfold_iteration_sum_value", *key("valid_count")): 16,
        ("rankfold_iteration_sum_value", *key("nonfinite_count")): 0,
        ("rankfold_iteration_max_value", *key("diff_max")): 0.25,
        ("rankfold_iteration_mean_value", *key("diff_mean")): 0.015625,
        ("rankfold_iteration_mean_value", "actor/loss", *run): 0.5,
        ("rankfold_mismatch_positions", *run, SERIES): 1,
        ("rankfold_nonfinite_positions", *run, SERIES): 0,
        ("rankfold_valid_positions", *run, SERIES): 20,
        ("rankfold_conflicts", *run): 0,
        ("rankfold_run_iteration", *run): 4,
        ("rankfold_run_complete_iteration", *run): 3,
        ("rankfold_run_ranks_expected", *run): 2,
        ("rankfold_run_ranks_reporting", *run): 2,
        ("rankfold_run_incomplete_iterations", *run): 1,
        ("rankfold_run_last_report_timestamp_seconds", *run): 1234.5,
        ("rankfold_run_finished", *run): 0,
    } | gate("fail")


@both_formats
def test_render_writes_what_the_gauges_say(form: str) -> None:
    """What parses back from either format is what was collected."""
    snapshot = snapshot_of(busy_ledger())
    assert values(form, scrape(form, snapshot)) == of_runs(snapshot)


@both_formats
def test_render_writes_what_the_client_library_would(form: str) -> None:
    """Names, labels, values, types and meanings are those of the library's own rendering."""
    run = snapshot_of(busy_ledger())
    registry = CollectorRegistry()
    registry.register(Gauges(run))
    encode = {"text": TEXT, "openmetrics": OPENMETRICS}[form].encode
    theirs = list(PARSERS[form](encode(registry).decode()))
    ours = list(PARSERS[form](scrape(form, run)))[: len(FAMILIES)]
    assert len(theirs) == len(FAMILIES)
    assert ours == theirs


@both_formats
def test_render_gives_every_family_even_without_runs(form: str) -> None:
    """An idle aggregator names all its gauges, so that rules and dashboards can be checked."""
    metrics = {m.name: m for m in PARSERS[form](scrape(form))}
    families = {family.name for family in FAMILIES}
    assert families == {
        *(f"rankfold_{rule}_value" for rule in ("sum", "max", "min", "mean", "last", "std")),
        *(f"rankfold_iteration_{rule}_value" for rule in ("sum", "max", "min", "mean")),
        *(f"rankfold_{what}_positions" for what in ("mismatch", "nonfinite", "valid")),
        "rankfold_conflicts",
        "rankfold_run_iteration",
        "rankfold_run_complete_iteration",
        "rankfold_run_ranks_expected",
        "rankfold_run_ranks_reporting",
        "rankfold_run_incomplete_iterations",
        "rankfold_run_last_report_timestamp_seconds",
        "rankfold_run_finished",
        "rankfold_gate",
    }
    for name in families:
        assert metrics[name].type == "gauge"
        assert metrics[name].documentation.endswith(".")
        assert metrics[name].samples == []


def test_family_names_leave_the_suffixes_of_other_types_alone() -> None:
    """No gauge ends in what counters, summaries and info metrics own; no name stands twice."""
    ours = [family.name for family in FAMILIES]
    own = [metric.name for metric in Telemetry().collect()]
    assert not [n for n in ours if n.endswith(("_sum", "_count", "_total", "_bucket", "_info"))]
    assert len({*ours, *own}) == len(ours) + len(own)


def test_gauges_of_an_exact_run_are_zero() -> None:
    """A run without any difference exports 0 from its first report on, not nothing."""
    ledger = new_ledger()
    tell(ledger, compared(), world_size=1, commit=0)
    found = of_runs(snapshot_of(ledger))
    run = ("default", "r1")
    assert only(found, "rankfold_mismatch_positions", "rankfold_max_value") == {
        ("rankfold_mismatch_positions", *run, SERIES): 0,
        ("rankfold_max_value", f"{SERIES}_diff_max", *run): 0,
    }
    assert only(found, "rankfold_gate") == gate("pass")


def test_gauges_of_a_run_without_series_are_its_own_only() -> None:
    """A run that only made itself known has coverage and a verdict, and no iteration."""
    ledger = new_ledger()
    tell(ledger, world_size=4)
    found = of_runs(snapshot_of(ledger))
    run = ("default", "r1")
    assert found == {
        ("rankfold_conflicts", *run): 0,
        ("rankfold_run_ranks_expected", *run): 4,
        ("rankfold_run_ranks_reporting", *run): 1,
        ("rankfold_run_incomplete_iterations", *run): 0,
        ("rankfold_run_last_report_timestamp_seconds", *run): 1000.0,
        ("rankfold_run_finished", *run): 0,
    } | gate("no_data")


def test_gauges_leave_out_values_that_do_not_exist() -> None:
    """An all-masked microbatch has counts of 0 and no maximum and no mean: neither 0 nor NaN."""
    ledger = new_ledger()
    nothing = scalar("loss", math.nan, Rule.MEAN)
    tell(ledger, compared(valid=0, largest=None), nothing, commit=0)
    found = of_runs(snapshot_of(ledger))
    assert only(found, "rankfold_max_value", "rankfold_mean_value") == {}
    assert only(found, "rankfold_iteration_max_value", "rankfold_iteration_mean_value") == {}
    assert only(found, "rankfold_valid_positions") == {
        ("rankfold_valid_positions", "default", "r1", SERIES): 0
    }


@both_formats
def test_render_writes_a_sum_beyond_the_doubles_as_infinity(form: str) -> None:
    """A sum that no double holds is +Inf, as in the API."""
    ledger = new_ledger()
    for iteration in (0, 1):
        tell(ledger, scalars=scalar("big", 1.7e308, Rule.SUM, iteration=iteration))
    text = scrape(form, snapshot_of(ledger))
    assert 'rankfold_sum_value{project="default",run="r1",key="big"} +Inf\n' in text


@both_formats
def test_render_writes_integers_exactly(form: str) -> None:
    """A count beyond 2**53 keeps its digits; a reader of doubles rounds it, to the nearest."""
    ledger = new_ledger()
    for iteration, valid in enumerate((2**53 - 1, 2**53 - 1, 5)):
        tell(ledger, compared(iteration, valid=valid))
    text = scrape(form, snapshot_of(ledger))
    assert f"}} {2**54 + 3}\n" in text
    found = values(form, text)
    assert found["rankfold_valid_positions", "default", "r1", SERIES] == 2**54 + 3


def test_gauges_keep_a_rule_in_its_own_family() -> None:
    """A key whose rule has no family for iterations is left out of them, not put elsewhere."""
    rules = RuleSet.parse('[series."*"]\nsmallest = { rule = "min", field = "max" }')
    ledger = new_ledger(rules=rules)
    newest = scalar("reward", 2.0, Rule.LAST)
    tell(ledger, compared(count=1, largest=0.5, sum_=0.5, sum_sq=0.25), newest, commit=0)
    families = {(labels[0], labels[1]) for labels in of_runs(snapshot_of(ledger))}
    smallest, deviation = f"{SERIES}_smallest", f"{SERIES}_diff_std"
    assert {family for family, key in families if key == smallest} == {
        "rankfold_min_value",
        "rankfold_iteration_min_value",
    }
    assert {family for family, key in families if key == deviation} == {"rankfold_std_value"}
    assert {family for family, key in families if key == "reward"} == {"rankfold_last_value"}


def test_mismatches_stay_over_a_restart() -> None:
    """What a superseded attempt saw stays counted, while the new one is clean."""
    ledger = new_ledger()
    tell(ledger, compared(count=2, largest=1.0, sum_=2.0), commit=0)
    tell(ledger, compared(), attempt=1, commit=0)
    found = of_runs(snapshot_of(ledger))
    assert only(found, "rankfold_mismatch_positions", "rankfold_iteration_sum_value") == {
        ("rankfold_mismatch_positions", "default", "r1", SERIES): 2,
        ("rankfold_iteration_sum_value", f"{SERIES}_mismatch_count", "default", "r1"): 0,
        ("rankfold_iteration_sum_value", f"{SERIES}_valid_count", "default", "r1"): 8,
        ("rankfold_iteration_sum_value", f"{SERIES}_nonfinite_count", "default", "r1"): 0,
    }


def test_a_conflict_shows_in_the_gauges() -> None:
    """The same identity with other content is counted and makes the verdict invalid."""
    ledger = new_ledger()
    tell(ledger, compared(valid=8), commit=0)
    tell(ledger, compared(valid=9))
    found = of_runs(snapshot_of(ledger))
    assert found["rankfold_conflicts", "default", "r1"] == 1
    assert found["rankfold_gate", "default", "r1", "invalid"] == 1


@pytest.mark.parametrize("verdict", list(Gate))
def test_gate_is_one_for_one_status(verdict: Gate) -> None:
    """Exactly the live verdict is 1."""
    ledger = new_ledger()
    tell(ledger, compared())
    found = of_runs(snapshot_of(ledger)._replace(gate=verdict))
    assert only(found, "rankfold_gate") == gate(verdict)


@both_formats
def test_render_orders_lines_the_same_each_time(form: str) -> None:
    """The order does not depend on who reported first, so that two scrapes can be compared."""
    bodies = set()
    for names in ("xyz", "zxy"):
        ledger = new_ledger()
        for name in names:
            tell(ledger, compared(series=name), scalar(f"loss {name}", 0.5, Rule.MEAN))
        bodies.add(scrape(form, snapshot_of(ledger)))
    assert len(bodies) == 1


def test_gauges_never_repeat_a_time_series() -> None:
    """Rules may give two series a key of one name; a scraper would refuse the doubled line."""
    rules = RuleSet.parse('[series.a]\nb_diff_max = { rule = "max", field = "max" }')
    ledger = new_ledger(rules=rules)
    tell(ledger, compared(series="a"))
    tell(ledger, compared(series="a_b"))
    for family in Gauges(snapshot_of(ledger)).collect():
        labels = [tuple(sample.labels.values()) for sample in family.samples]
        assert len(labels) == len(set(labels))


ODD = ["back\\slash", 'quo"te', "\\n", 'x\\"', '{a="b"} 1 # EOF', " lead", "ä\u2028漢🙂\u00a0"]


@both_formats
@pytest.mark.parametrize("name", ODD)
def test_render_keeps_odd_label_values(form: str, name: str) -> None:
    """Backslashes, quotes, what looks like syntax and any script come back as they were sent."""
    ledger = new_ledger(name, name)
    tell(ledger, compared(series=name), scalar(name, 1.0, Rule.SUM))
    snapshot = snapshot_of(ledger)
    assert values(form, scrape(form, snapshot)) == of_runs(snapshot)


@both_formats
def test_render_escapes_newlines(form: str) -> None:
    """No name may hold a line break, but if one did, it would not break the scrape."""
    ledger = new_ledger()
    tell(ledger)
    text = scrape(form, snapshot_of(ledger)._replace(run="two\nlines"))
    assert 'rankfold_conflicts{project="default",run="two\\nlines"} 0\n' in text


def allowed_names(in_path: bool) -> st.SearchStrategy[str]:
    """Return a strategy for the names that the contract allows."""
    some = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=200)
    syntax = st.text('\\"{}=,# \u2028\u0085\u00a0\ufeffn', min_size=1, max_size=12)
    return (some | syntax).filter(lambda name: name_fault(name, in_path=in_path) is None)


@both_formats
@given(allowed_names(True), allowed_names(True), allowed_names(False), allowed_names(False))
def test_render_takes_every_name_that_is_allowed(
    form: str, project: str, run: str, series: str, key: str
) -> None:
    """No allowed name makes a scrape fail or read as another."""
    ledger = new_ledger(project, run)
    tell(ledger, compared(series=series))
    tell(ledger, scalars=scalar(f"{key}!"[-200:], 1.5, Rule.MAX))
    snapshot = snapshot_of(ledger)
    assert values(form, scrape(form, snapshot)) == of_runs(snapshot)


def test_openmetrics_ends_with_eof() -> None:
    """A truncated OpenMetrics body can be told from a whole one."""
    assert scrape("openmetrics").endswith("\n# EOF\n")
    assert "# EOF" not in scrape("text")


PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, TEXT),
        ("", TEXT),
        ("*/*", TEXT),
        ("text/html, */*;q=0.8", TEXT),
        (PROMETHEUS, OPENMETRICS),
        ("application/openmetrics-text", OPENMETRICS),
        ("Application/OpenMetrics-Text; Version=1.0.0", OPENMETRICS),
        ("text/plain, application/openmetrics-text", OPENMETRICS),
        ("text/plain;q=0.9, application/openmetrics-text;q=0.1", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=high", TEXT),
        ("application/openmetrics-text;q=nan", TEXT),
        ("application/openmetrics-text;version=0.0.1", TEXT),
        ("application/openmetrics-text;version=2.0.0", TEXT),
        ("application/openmetrics-text;version=x", TEXT),
        ("text/plain;version=1.0.0;escaping=dots", TEXT),
        (";;,=;q", TEXT),
    ],
)
def test_negotiate_takes_what_is_liked_best(accept: str | None, expected: object) -> None:
    """OpenMetrics 1 where it is named and not liked less than text; else text, never an error."""
    assert negotiate(accept) is expected


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("text", "text/plain; version=0.0.4; charset=utf-8"),
        ("openmetrics", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    ],
)
def test_render_says_its_content_type(form: str, expected: str) -> None:
    """The answer names the type and version that was written, whatever was asked for."""
    _, content_type = asyncio.run(Exposition(Runs(), Telemetry()).render(ACCEPTS[form]))
    assert content_type == expected


@both_formats
def test_render_counts_the_series_that_it_exports(form: str) -> None:
    """The aggregator's own figures stand in the same scrape and know how large it is."""
    snapshot = snapshot_of(busy_ledger())
    text = scrape(form, snapshot)
    assert f"rankfold_exported_series {float(len(of_runs(snapshot)))}\n" in text
    assert "rankfold_build_info{" in text


def test_render_is_shared_until_it_is_old() -> None:
    """Within the cache's time scrapes get one rendering per format; after it a new one."""

    async def scenario() -> list[int]:
        runs, clock = Runs(), Clock()
        exposition = Exposition(runs, Telemetry(), cache_seconds=2.0, clock=clock)
        asked = []
        for step, form in ((0.0, "text"), (1.9, "text"), (0.0, "openmetrics"), (0.1, "text")):
            clock.now += step
            await exposition.render(ACCEPTS[form])
            asked.append(runs.asked)
        return asked

    assert asyncio.run(scenario()) == [1, 1, 2, 3]


def test_render_without_a_cache_takes_a_snapshot_each_time() -> None:
    """With a cache of 0 seconds every scrape is fresh."""

    async def scenario() -> int:
        runs = Runs()
        exposition = Exposition(runs, Telemetry(), cache_seconds=0.0, clock=Clock())
        for _ in range(3):
            await exposition.render(None)
        return runs.asked

    assert asyncio.run(scenario()) == 3


def test_concurrent_renders_share_one_snapshot() -> None:
    """Scrapers that come while a rendering is under way get that one."""

    async def scenario() -> tuple[int, set[tuple[bytes, str]]]:
        runs = Runs(snapshot_of(busy_ledger()))
        exposition = Exposition(runs, Telemetry(), cache_seconds=0.0)
        answers = await asyncio.gather(*(exposition.render(None) for _ in range(5)))
        return runs.asked, set(answers)

    asked, answers = asyncio.run(scenario())
    assert asked == 1
    assert len(answers) == 1


@pytest.mark.parametrize("cache_seconds", [0.0, 1.0])
def test_a_scraper_that_comes_later_sees_what_was_reported_before(cache_seconds: float) -> None:
    """It gets no rendering that began before it asked, unless it may be that old."""

    async def scenario() -> tuple[list[bytes], int]:
        runs = Runs()
        runs.gate.clear()
        exposition = Exposition(runs, Telemetry(), cache_seconds, Clock())
        first = asyncio.create_task(exposition.render(None))
        while not runs.asked:
            await asyncio.sleep(0)
        later = [asyncio.create_task(exposition.render(None)) for _ in range(3)]
        await asyncio.sleep(0)
        runs.lines = Runs(snapshot_of(busy_ledger())).lines
        runs.gate.set()
        return [(await task)[0] for task in (first, *later)], runs.asked

    bodies, asked = asyncio.run(scenario())
    shown = [b'run="r1"' in body for body in bodies]
    assert shown == ([False, False, False, False] if cache_seconds else [False, True, True, True])
    assert asked == (1 if cache_seconds else 2)


def test_a_failed_snapshot_fails_its_scrapers_and_is_forgotten() -> None:
    """All who waited for it see the error; the next scrape works."""

    async def scenario() -> tuple[list[object], bytes]:
        runs = Runs()
        exposition = Exposition(runs, Telemetry())
        runs.failure = RuntimeError("no store")
        failed = await asyncio.gather(
            *(exposition.render(None) for _ in range(2)), return_exceptions=True
        )
        runs.failure = None
        body, _ = await exposition.render(None)
        return list(failed), body

    failed, body = asyncio.run(scenario())
    assert [str(error) for error in failed] == ["no store", "no store"]
    assert b"rankfold_gate" in body


def test_a_scraper_that_hangs_up_leaves_the_others_their_rendering() -> None:
    """Cancelling the one that began it does not cancel it for those who joined."""

    async def scenario() -> tuple[bytes, int]:
        runs = Runs()
        runs.gate.clear()
        exposition = Exposition(runs, Telemetry())
        first = asyncio.create_task(exposition.render(None))
        second = asyncio.create_task(exposition.render(None))
        while not runs.asked:
            await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        runs.gate.set()
        body, _ = await second
        return body, runs.asked

    body, asked = asyncio.run(scenario())
    assert b"rankfold_gate" in body
    assert asked == 1


class Watched(dict[Name, Lines]):
    """Lines that note from which threads they are read."""

    def __init__(self, lines: Mapping[Name, Lines]) -> None:
        super().__init__(lines)
        self.threads: set[int] = set()

    def values(self) -> ValuesView[Lines]:  # type: ignore[override]  # the base's is its own
        """Note the reading thread."""
        self.threads.add(threading.get_ident())
        return super().values()


def test_render_writes_off_the_event_loop() -> None:
    """The loop goes on taking reports while a large scrape is put together."""
    watched = Watched(Runs(snapshot_of(busy_ledger())).lines)

    async def look() -> Mapping[Name, Lines]:
        return watched

    asyncio.run(Exposition(look, Telemetry()).render(None))
    assert len(watched.threads) == 1
    assert threading.get_ident() not in watched.threads
