"""What `rankfold demo` reads of its run, and how it looks on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx

RANKS = 2
PROJECT = "demo"
SERIES = "training/rollout_logprobs"
SHOWN_WORST = 5
EXPLAINED = {
    (
        "fail",
        False,
    ): "As expected: both paths have the same weights, but a cached step and a padded "
    "forward round\ndifferently. With --exact the rollout scores by the trainer's kernels.",
    ("pass", True): "Same kernels, same shapes: every log-prob is the same to the last bit.",
}
UNEXPECTED = "This is not what the demo should end with."

Item = dict[str, Any]


class Run:
    """The reads of one run that the demo shows."""

    def __init__(self, http: httpx.Client, name: str) -> None:
        self.http, self.name = http, name
        self.path = f"/api/v1/projects/{PROJECT}/runs/{name}"

    def get(self, what: str, **query: str | int) -> Item:
        """Return one answer; one without items while nothing was reported."""
        response = self.http.get(f"{self.path}/{what}", params=query)
        if response.status_code == httpx.codes.NOT_FOUND:
            return {"items": [], "next": None}
        answer: Item = response.raise_for_status().json()
        return answer

    def iterations(self, **query: str | int) -> Iterator[Item]:
        """Yield every iteration, page by page."""
        page = self.get("iterations", **query)
        yield from page["items"]
        while page["next"] is not None:
            page = self.get("iterations", **(query | {"after": page["next"]}))
            yield from page["items"]

    def everything(self) -> Item:
        """Return all that the demo shows: totals, the gate and each rank's iterations."""
        ranks = {str(rank): list(self.iterations(rank=rank)) for rank in range(RANKS)}
        return {"totals": self.get("totals"), "gate": self.get("gate"), "ranks": ranks}


def progress_line(item: Item, seconds: float) -> str:
    """Return the line on one iteration over all ranks."""
    keys = item["keys"]
    differ, valid = keys[f"{SERIES}_mismatch_count"], keys[f"{SERIES}_valid_count"]
    return (
        f"  {seconds:5.1f} s   iteration {item['iteration']}: {differ:,} of {valid:,} log-probs "
        f"differ, reward {keys['reward/mean']:.2f}"
    )


def print_report(found: Item, *, exact: bool) -> None:
    """Print every iteration of every rank, the worst tokens and the verdict.

    Args:
        found: what `Run.everything` returned.
        exact: the paths were meant to agree.
    """
    gate = found["gate"]
    print("\nTrainer against rollout, d = |trainer - rollout|:\n")
    print("iteration  rank   differ   tokens    share      max d     mean d        max ULP")
    rows = [(item, rank) for rank, items in found["ranks"].items() for item in items]
    for item, rank in sorted(rows, key=lambda row: (row[0]["iteration"], row[1])):
        print(_row(f"{item['iteration']:>9}  {rank:>4}", item["keys"]))
    print(
        _row(f"{'all':>9}  {'all':>4}", {k: v["value"] for k, v in found["totals"]["keys"].items()})
    )
    _print_worst(gate["worst"][:SHOWN_WORST])
    print(f"\nGate: {gate['gate']}")
    for reason in gate["reasons"]:
        print(f"  {reason}")
    print(EXPLAINED.get((gate["gate"], exact), UNEXPECTED))


def _row(name: str, keys: Item) -> str:
    differ, valid, largest, mean, ulp = (
        keys[f"{SERIES}_{what}"]
        for what in ("mismatch_count", "valid_count", "diff_max", "diff_mean", "ulp_max")
    )
    share = differ / valid if valid else 0
    largest, mean = (f"{'-' if d is None else format(d, '.3g'):>9}" for d in (largest, mean))
    return f"{name}  {differ:>7,}  {valid:>7,}  {share:>7.1%}  {largest}  {mean}  {ulp:>13,}"


def _print_worst(tokens: list[Item]) -> None:
    if tokens:
        print("\nWorst tokens:\n")
        print("      trainer        rollout            ULP  token  position  sample")
    for token in tokens:
        row, column = token["position"]
        print(
            f"{_number(token['a']):>13}  {_number(token['b']):>13}  {token['ulp']:>13,}  "
            f"{token['token_id']:>5}  {f'{row}, {column}':>8}  {token['sample']}"
        )


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.9g}"  # 9 digits tell float32s apart


def print_further(url: str, name: str, *, keep: bool) -> None:
    """Print where to look further."""
    options = f"--url {url} --project {PROJECT}"
    print(f"\nAPI      {url}/api/v1/projects/{PROJECT}/runs/{name}/totals")
    print(f"metrics  {url}/metrics")
    print(f"further  rankfold gate {name} {options}")
    print(f"         rankfold ranks {name} {options}")
    print(f"         curl -s {url}/metrics | grep rankfold_gate")
    if not keep:
        print("These answer while the aggregator is up: rankfold demo --keep")
