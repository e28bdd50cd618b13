"""Runs scenarios of faults by seed: `make test-faults ARGS="--seed N"` replays one."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from itertools import chain
from pathlib import Path
from statistics import median
from typing import NamedTuple

from .conductor import Outcome
from .loaded import Loaded
from .replicated import Replicated
from .single import Single


class Form(NamedTuple):
    """What the long form is over a store: how many seeds, and how many faults for each."""

    conductor: type[Single | Replicated | Loaded]
    seeds: int
    strikes: int


FORMS = {
    "sqlite": Form(Single, 20, 12),
    "postgresql": Form(Replicated, 50, 6),
    "postgresql-under-load": Form(Loaded, 12, 5),
}


def main() -> int:
    """Run scenarios and return 1 if one of them did not end as the oracle says."""
    parser = argparse.ArgumentParser(prog="python -m e2e.faults", description=__doc__)
    parser.add_argument("--store", choices=FORMS, default="sqlite", help="what is beneath")
    parser.add_argument("--seed", type=int, action="append", help="this one; repeatable")
    parser.add_argument("--strikes", type=int, help="faults per seed")
    parser.add_argument("--seconds", type=float, default=1200.0, help="begin no seed after this")
    args = parser.parse_args()
    started, kills, done = time.monotonic(), Counter[str](), 0
    resumes: defaultdict[str, list[float]] = defaultdict(list)
    form = FORMS[args.store]
    seeds = args.seed or range(form.seeds)
    for seed in seeds:
        if time.monotonic() - started > args.seconds:
            print(f"stopped after {args.seconds:.0f} s")
            break
        outcome = play(seed, args.strikes or form.strikes, args.store)
        kills += outcome.kills
        for what, times in outcome.resumes.items():
            resumes[what] += times
        done += 1
        print(f"seed {seed}: equal to the oracle; {described(outcome)}", flush=True)
    seconds = time.monotonic() - started
    print(f"{done} of {len(seeds)} seeds in {seconds:.0f} s")
    print(f"{kills.total()} kill points: {_listed(kills)}")
    for what, times in resumes.items():
        print(f"until {what}: median {median(times):.2f} s, slowest {max(times):.2f} s")
    return 0 if done == len(seeds) else 1


def play(seed: int, strikes: int, store: str = "sqlite") -> Outcome:
    """Run one scenario; if it fails, say how to run it again and keep its files."""
    folder = Path(tempfile.mkdtemp(prefix=f"rankfold-faults-{seed}-"))
    try:
        outcome = FORMS[store].conductor(seed, strikes, folder).run()
    except BaseException:
        again = f'make test-faults ARGS="--store {store} --seed {seed} --strikes {strikes}"'
        print(f"seed {seed} failed; its files are in {folder}; again: {again}", file=sys.stderr)
        raise
    _remove(folder)
    return outcome


def described(outcome: Outcome) -> str:
    """Return what a scenario went through in words."""
    queue = "queues on disk" if outcome.durable else "queues in memory"
    return (
        f"{outcome.seconds:.1f} s, {queue}, kills: {_listed(outcome.kills)}, "
        f"strikes: {_listed(outcome.strikes)}, connections: {_listed(outcome.broken)}, "
        f"statuses {outcome.statuses}, slowest start {outcome.slowest_start:.2f} s, "
        f"slowest resume {max(chain(*outcome.resumes.values()), default=0.0):.2f} s"
    )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.most_common())


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


if __name__ == "__main__":
    sys.exit(main())
