"""The dashboard *Run*: how one run's log-probs differ, over time and over iterations."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, units
from grafana_foundation_sdk.models import dashboard as model

from rankfold_deploy.dashboards.frame import chosen, filled, framed, several
from rankfold_deploy.dashboards.panels import (
    About,
    bad_from_one,
    gate_names,
    graph,
    over_iterations,
    query,
    stat,
    states,
    symlog,
    timeline,
)
from rankfold_deploy.dashboards.promql import (
    PROJECTS,
    RUN,
    SCALARS,
    SERIES,
    key_of_series,
    once,
    verdict,
)

MISSED = (
    " Each point is what one scrape saw of the newest complete iteration; the API's `iterations` "
    "has every one, exactly."
)
ITERATION = once("rankfold_run_complete_iteration", RUN, "run")


def run() -> build.Dashboard:
    """Return the dashboard *Run*."""
    dashboard = framed(
        "rankfold-run",
        "Rankfold / Run",
        "One run: its verdict, where its log-probs differ and by how much, and what is missing.",
        [
            chosen("project", "rankfold_run_finished"),
            chosen("run", "rankfold_run_finished", PROJECTS),
            several(chosen("series", "rankfold_valid_positions", RUN)),
        ],
    )
    return filled(
        dashboard,
        [
            ("Verdict", list(_verdict())),
            ("Differences", list(_differences())),
            ("Positions", list(_positions())),
            ("Coverage", list(_coverage())),
            ("Scalars by rule, in the newest complete iteration", list(_scalars())),
        ],
    )


def _verdict() -> Iterator[Builder[model.Panel]]:
    about = About(
        "Gate",
        units.NoUnit,
        "The last live verdict in the time shown: iterations in progress are left out, all "
        "attempts are counted. The command `rankfold gate` is strict.",
    )
    gate = stat(about, query(verdict(RUN))).mappings(gate_names())
    yield gate.color_mode(common.BigValueColorMode.BACKGROUND_SOLID)
    yield _bad("Mismatches", "mismatch", "Positions where trainer and rollout differ")
    yield _bad("Non-finite", "nonfinite", "Mismatching positions whose |d| is NaN or infinite")
    about = About(
        "Conflicts",
        units.LocaleFormat,
        "Identities that were reported again with other content: two processes claim one shard, "
        "or a recompute was not deterministic. Any makes the verdict invalid.",
    )
    conflicts = query(once("rankfold_conflicts", RUN, "run"))
    yield stat(about, conflicts).thresholds(bad_from_one())
    about = About(
        "Compared",
        units.LocaleFormat,
        "Positions under the mask that were compared in the chosen series, over all attempts.",
    )
    yield stat(about, query(_over_series("rankfold_valid_positions")))
    about = About(
        "Complete to",
        units.NoUnit,
        "The newest iteration that every expected rank committed and reported in full.",
        "no iteration yet",
    )
    yield stat(about, query(ITERATION))
    about = About("State", units.NoUnit, "Whether the run was marked finished.")
    yield stat(about, query(once("rankfold_run_finished", RUN, "run"))).mappings(states())
    about = About(
        "Last report",
        units.DateTimeFromNow,
        "When the last report of any rank arrived.",
    )
    last = once("rankfold_run_last_report_timestamp_seconds", RUN, "run")
    yield stat(about, query(f"1000 * {last}"))


def _bad(title: str, name: str, meaning: str) -> Builder[model.Panel]:
    about = About(
        title,
        units.LocaleFormat,
        f"{meaning}, in the chosen series, over all attempts and ranks. It never falls.",
    )
    counted = query(_over_series(f"rankfold_{name}_positions"))
    return stat(about, counted).thresholds(bad_from_one())


def _over_series(metric: str) -> str:
    return f"sum({once(metric, SERIES, 'series')})"


def _differences() -> Iterator[Builder[model.Panel]]:
    """Yield count, maximum and mean of |d|, each over time and over iterations."""
    about = About(
        "Mismatching positions",
        units.LocaleFormat,
        "Positions where trainer and rollout differ, per series, over all attempts. It never "
        "falls; 0 from a series' first report on.",
    )
    yield graph(about, query(once("rankfold_mismatch_positions", SERIES, "series"), "{{series}}"))
    about = About(
        "Mismatching positions by iteration",
        units.LocaleFormat,
        "Positions that differ in an iteration, over all ranks." + MISSED,
    )
    yield over_iterations(about, ITERATION, _in_iteration("sum", "mismatch_count"))
    about = About(
        "Largest |d|",
        units.ScientificNotation,
        "The largest finite |a - b| of the whole run, per series. The scale is logarithmic and "
        "shows zero; zero is what an exact run has.",
    )
    whole = query(once("rankfold_max_value", key_of_series("diff_max"), "key"), "{{key}}")
    yield graph(about, whole).scale_distribution(symlog())
    about = About(
        "Largest |d| by iteration",
        units.ScientificNotation,
        "The largest finite |a - b| in an iteration, over all ranks." + MISSED,
    )
    largest = over_iterations(about, ITERATION, _in_iteration("max", "diff_max"))
    yield largest.scale_distribution(symlog())
    about = About(
        "Mean |d|",
        units.ScientificNotation,
        "The mean |a - b| of the whole run, per series: weighted by positions, divided once. The "
        "scale is logarithmic and shows zero.",
        "no finite difference",
    )
    whole = query(once("rankfold_mean_value", key_of_series("diff_mean"), "key"), "{{key}}")
    yield graph(about, whole).scale_distribution(symlog())
    about = About(
        "Mean |d| by iteration",
        units.ScientificNotation,
        "The mean |a - b| in an iteration, over all ranks and positions." + MISSED,
        "no finite difference",
    )
    mean = over_iterations(about, ITERATION, _in_iteration("mean", "diff_mean"))
    yield mean.scale_distribution(symlog())


def _in_iteration(rule: str, suffix: str) -> Dataquery:
    newest = once(f"rankfold_iteration_{rule}_value", key_of_series(suffix), "key")
    return query(newest, "{{key}}", "values")


def _positions() -> Iterator[Builder[model.Panel]]:
    about = About(
        "Tokens compared",
        units.LocaleFormat,
        "Positions under the mask, per series, over all attempts. A series whose mask is empty "
        "stays at 0, and its verdict is no_data.",
    )
    yield graph(about, query(once("rankfold_valid_positions", SERIES, "series"), "{{series}}"))
    about = About(
        "Non-finite differences",
        units.LocaleFormat,
        "Mismatching positions whose |a - b| is NaN or infinite, per series. They are in no "
        "maximum and no mean.",
    )
    nonfinite = once("rankfold_nonfinite_positions", SERIES, "series")
    yield graph(about, query(nonfinite, "{{series}}"))


def _coverage() -> Iterator[Builder[model.Panel]]:
    about = About("Gate over time", units.NoUnit, "The live verdict as it was.")
    yield timeline(about, query(verdict(RUN), "gate")).mappings(gate_names())
    about = About(
        "Ranks",
        units.NoUnit,
        "Ranks of the latest attempt: its world size (or those seen, where it is not known), and "
        "those that have reported.",
    )
    yield graph(
        about,
        query(once("rankfold_run_ranks_expected", RUN, "run"), "expected", "A"),
        query(once("rankfold_run_ranks_reporting", RUN, "run"), "reporting", "B"),
    )
    about = About(
        "Iterations",
        units.NoUnit,
        "The newest iteration reported by any rank, and the newest that is complete. A gap that "
        "stays open is a rank that does not report.",
    )
    yield graph(
        about,
        query(once("rankfold_run_iteration", RUN, "run"), "reported", "A"),
        query(ITERATION, "complete", "B"),
    )
    about = About(
        "Incomplete iterations, conflicts",
        units.LocaleFormat,
        "Iterations that lack a rank, a commit or a microbatch, those in progress too; and "
        "identities reported with other content.",
    )
    yield graph(
        about,
        query(once("rankfold_run_incomplete_iterations", RUN, "run"), "incomplete", "A"),
        query(once("rankfold_conflicts", RUN, "run"), "conflicts", "B"),
    )


def _scalars() -> Iterator[Builder[model.Panel]]:
    for rule, meaning in (
        ("sum", "added up"),
        ("mean", "averaged, weighted, divided once"),
        ("max", "the largest"),
        ("min", "the smallest"),
    ):
        about = About(
            f"Scalars: {rule}",
            units.Short,
            f"The trainer's own numbers that fold by {rule}: {meaning} over ranks and microbatches "
            "of the newest complete iteration. Keys that are named like those of a series are "
            "left out.",
            f"no scalar folds by {rule}",
        )
        values = once(f"rankfold_iteration_{rule}_value", SCALARS, "key")
        yield graph(about, query(values, "{{key}}"))
    about = About(
        "Scalars: last",
        units.Short,
        "The trainer's own numbers that fold by last: the newest value.",
        "no scalar folds by last",
    )
    yield graph(about, query(once("rankfold_last_value", SCALARS, "key"), "{{key}}"), width=24)
