"""What `rankfold demo` reads of its run, and how it looks on a terminal."""

from __future__ import annotations

from typing import Any

from rankfold.answers import GateAnswer, IterationsAnswer, TotalsAnswer
from rankfold.errors import NotFound
from rankfold_service.cli.api import Answer, Api, run_path
from rankfold_service.cli.tables import Column, table
from rankfold_service.cli.text import Screen, number, plain
from rankfold_service.cli.verdict import verdict_text

RANKS = 2
PROJECT = "demo"
SERIES = "training/rollout_logprobs"
SHOWN_WORST = 5
EXPLAINED = {
    ("fail", False): "As expected: the weights are the same, but one cached step at a time rounds "
    "otherwise than a\npadded forward does. With --exact the rollout scores by the trainer's "
    "kernels and shapes.",
    ("pass", True): "Same kernels, same shapes: every log-prob is the same to the last bit.",
}
UNEXPECTED = "This is not how the demo should end."
COLUMNS = [
    Column(title, number=True)
    for title in (
        "iteration",
        "rank",
        "differ",
        "tokens",
        "share",
        "max |d|",
        "mean |d|",
        "max ulp",
    )
]

Item = dict[str, Any]


class Run:
    """The reads of one run that the demo shows."""

    def __init__(self, api: Api, name: str) -> None:
        self.api, self.name = api, name

    def iterations(self, rank: int | None = None) -> list[Item]:
        """Return what is known of every iteration; nothing before the first report."""
        try:
            path = run_path(PROJECT, self.name, "iterations")
            answer = self.api.pages(path, IterationsAnswer, {"rank": rank})
        except NotFound:
            return []
        items: list[Item] = answer["items"]
        return items

    def everything(self) -> Answer:
        """Return all that the demo shows: totals, the gate and each rank's iterations."""
        return {
            "totals": self.api.get(run_path(PROJECT, self.name, "totals"), TotalsAnswer),
            "gate": self.api.get(
                run_path(PROJECT, self.name, "gate"), GateAnswer, {"require_finished": "true"}
            ),
            "ranks": {str(rank): self.iterations(rank) for rank in range(RANKS)},
        }


def progress_line(item: Item, seconds: float) -> str:
    """Return the line on one iteration over all ranks."""
    keys = item["keys"]
    differ, valid = keys[f"{SERIES}_mismatch_count"], keys[f"{SERIES}_valid_count"]
    return (
        f"  {seconds:5.1f} s  iteration {item['iteration']}: {differ:,} of {valid:,} log-probs "
        f"differ, reward {keys['reward/mean']:.2f}"
    )


def report_text(found: Answer, screen: Screen, *, exact: bool) -> str:
    """Return every iteration of every rank, the verdict, and why it is the right one.

    Args:
        found: what `Run.everything` returned.
        screen: where the text goes.
        exact: the two paths were meant to agree.
    """
    gate = found["gate"]
    blocks = [
        screen.heading("trainer against rollout, d = trainer's log-prob - rollout's"),
        table(COLUMNS, _rows(found), screen),
        "",
        verdict_text(gate | {"worst": gate["worst"][:SHOWN_WORST]}, screen),
        "",
        EXPLAINED.get((gate["gate"], exact), UNEXPECTED),
    ]
    return "\n".join(blocks)


def _rows(found: Answer) -> list[list[str]]:
    items = [(item, rank) for rank, items in found["ranks"].items() for item in items]
    items.sort(key=lambda pair: pair[0]["iteration"])
    totals = {key: total["value"] for key, total in found["totals"]["keys"].items()}
    rows = [[plain(item["iteration"]), rank, *_figures(item["keys"])] for item, rank in items]
    return [*rows, ["all", "all", *_figures(totals)]]


def _figures(keys: Item) -> list[str]:
    differ, valid = keys[f"{SERIES}_mismatch_count"], keys[f"{SERIES}_valid_count"]
    share = f"{differ / valid:.1%}" if valid else number(None)
    rest = (keys[f"{SERIES}_{what}"] for what in ("diff_max", "diff_mean", "ulp_max"))
    return [number(differ), number(valid), share, *map(number, rest)]


def further_text(url: str, name: str, *, keep: bool) -> str:
    """Return where to look further, where there still is something to look at."""
    if not keep:
        return (
            "The aggregator ends now, and its store is gone: `rankfold demo --keep` leaves it\n"
            "running until Ctrl-C, and says where it answers."
        )
    options = f"--url {url} --project {PROJECT}"
    lines = [
        "The aggregator stays up: end it with Ctrl-C. It answers at",
        f"API      {url}/api/v1/projects/{PROJECT}/runs/{name}/totals",
        f"metrics  {url}/metrics",
        f"further  rankfold gate {name} {options}",
        f"         rankfold worst {name} {options}",
        f"         curl -s {url}/metrics | grep rankfold_gate",
    ]
    return "\n".join(lines)
