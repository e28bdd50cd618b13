"""The job's command line, to be started by torchrun."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import distributed

from rankfold_client import Reporter
from rankfold_client.demo.train import Job, Settings

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
DEFAULTS = Settings()
DELIVERY_SECONDS = 30.0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's options."""
    made = argparse.ArgumentParser(prog="rankfold_client.demo", description=__doc__)
    made.add_argument("--url", required=True, help="the aggregator")
    made.add_argument("--project", default="demo", help="default: %(default)s")
    made.add_argument("--name", default="demo", help="of the run; default: %(default)s")
    made.add_argument("--iterations", type=int, default=DEFAULTS.iterations)
    made.add_argument("--seed", type=int, default=DEFAULTS.seed)
    made.add_argument("--dump", type=Path, help="folder for the compared tensors")
    how = made.add_mutually_exclusive_group()
    how.add_argument("--dtype", choices=DTYPES, default="float32", help="of the rollout")
    how.add_argument("--exact", action="store_true", help="roll out by the trainer's kernels")
    return made


def main() -> int:
    """Run this rank's part; 1 where reports could not be delivered."""
    args = parser().parse_args()
    settings = Settings(
        iterations=args.iterations,
        dtype=DTYPES[args.dtype],
        exact=args.exact,
        seed=args.seed,
        dump=args.dump,
    )
    torch.set_num_threads(1)  # ranks share a machine: more threads would take each other's cores
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    mode = "the trainer's kernels" if args.exact else "incremental decoding with a cache"
    meta = {"framework": f"torch {torch.__version__}", "rollout": mode, "dtype": args.dtype}
    with Reporter(args.name, project=args.project, url=args.url, meta=meta) as reporter:
        Job(settings, reporter, rank).run()
        undelivered = reporter.close(timeout=DELIVERY_SECONDS)
    distributed.destroy_process_group()
    if undelivered:
        sys.stderr.write(f"rank {rank}: {undelivered} reports were not delivered\n")
    return 1 if undelivered else 0


if __name__ == "__main__":
    sys.exit(main())
