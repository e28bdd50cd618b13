"""`rankfold demo`: an aggregator, a real two-rank training job, and the verdict on it."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import httpx

from rankfold.errors import Unreachable
from rankfold_service.cli import options
from rankfold_service.cli.api import Answer, Api
from rankfold_service.cli.children import Child, ChildFailed
from rankfold_service.cli.demo_report import (
    PROJECT,
    RANKS,
    Run,
    further_text,
    progress_line,
    report_text,
)
from rankfold_service.cli.text import Screen, counted

READY_SECONDS = 30.0
POLL_SECONDS = 0.25

DESCRIPTION = """\
Starts an aggregator on a temporary SQLite file and a real two-rank training job on the CPU.
The job samples a small transformer token by token with a cache, scores the same tokens by a
full forward over padded microbatches, and takes policy-gradient steps. Shown is where the
log-probs of the two differ, and the verdict on it. It takes less than a minute.
"""

EPILOG = """\
examples:
  rankfold demo                    float32 on both sides: the last bits differ
  rankfold demo --dtype bfloat16   a rollout in bfloat16: nearly every token differs
  rankfold demo --exact            the same kernels and shapes: the gate passes
  rankfold demo --keep             then look around with the other commands

exit codes:
  0  the demo worked; that the gate fails is its point
  1  it did not work, or --exact did not pass the gate
  2  wrong usage, or torch is not installed
"""

say = functools.partial(print, flush=True)


def add_parser(subparsers: options.Subparsers) -> None:
    """Add `demo` to the command line."""
    parser = options.new_parser(subparsers, "demo", run, DESCRIPTION, EPILOG)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--exact", action="store_true", help="score both sides by the same kernels")
    how.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="of the rollout's weights (default: %(default)s)",
    )
    parser.add_argument(
        "--iterations",
        type=options.how_many,
        default=8,
        help="training steps (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=options.index, default=0, help="of all random numbers (default: %(default)s)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the aggregator until Ctrl-C")
    parser.add_argument("--dump", type=Path, metavar="DIR", help="write the compared tensors here")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write totals and gate here, as JSON"
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo and return its exit code."""
    refusal = refuse(args)
    if refusal:
        print(f"rankfold demo: {refusal}", file=sys.stderr)
        return 2
    # Being terminated must end the children too, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="rankfold-demo-") as folder:
        try:
            return show(args, Path(folder))
        except ChildFailed as failure:
            print(f"rankfold demo: {failure}", file=sys.stderr)
            return 1


def refuse(args: argparse.Namespace) -> str | None:
    """Return why the demo cannot run like this, or None where it can."""
    if importlib.util.find_spec("torch") is None:
        return "the training job needs torch: install the extra 'client', as the README says"
    try:
        if args.dump is not None:
            args.dump.mkdir(parents=True, exist_ok=True)
            if any(args.dump.iterdir()):
                return f"--dump: {args.dump} is not empty"
        if args.json is not None:
            args.json.touch()
    except OSError as error:
        return f"cannot write there: {error}"
    return None


def show(args: argparse.Namespace, folder: Path) -> int:
    """Run the aggregator and the job, print what came of it, and judge it."""
    name = "exact" if args.exact else args.dtype
    address = free_address()
    url = f"http://{address}"
    serve = ["serve", "--listen", address, "--store", f"sqlite:///{folder}/rankfold.db"]
    with Child("the aggregator", ["rankfold_service.cli.main", *serve], folder) as aggregator:
        wait_until_ready(url, aggregator)
        say(f"aggregator    {url}")
        try:
            with Api(url) as api:
                found = measure(args, Run(api, name), folder)
        except Unreachable as error:
            raise aggregator.failure(str(error)) from error
        if args.json is not None:
            args.json.write_text(json.dumps(found, indent=1) + "\n")
        say(f"\n{report_text(found, Screen.of(sys.stdout), exact=args.exact)}\n")
        say(further_text(url, name, keep=args.keep))
        if args.keep:
            stay(aggregator)
    return 0 if found["gate"]["gate"] in (("pass",) if args.exact else ("pass", "fail")) else 1


def free_address() -> str:
    """Return a host and port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def wait_until_ready(url: str, aggregator: Child) -> None:
    """Return when the aggregator is ready."""
    deadline = time.monotonic() + READY_SECONDS
    while aggregator.running() and time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/-/ready", trust_env=False).is_success:
                return
        except httpx.TransportError:
            pass  # it does not listen yet
        time.sleep(POLL_SECONDS)
    raise aggregator.failure("was not ready in time")


def measure(args: argparse.Namespace, run: Run, folder: Path) -> Answer:
    """Run the training job and return what the aggregator says of it."""
    say(f"training job  {RANKS} ranks, {counted(args.iterations, 'iteration')}")
    with Child("the training job", job_module(args, run), folder) as job:
        follow(run, job)
    return run.everything()


def job_module(args: argparse.Namespace, run: Run) -> list[str]:
    """Return the training job as a module and its arguments."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), "-m"]
    job = ["rankfold_client.demo", "--url", run.api.url, "--project", PROJECT, "--name", run.name]
    job += ["--iterations", str(args.iterations), "--seed", str(args.seed)]
    job += ["--exact"] if args.exact else ["--dtype", args.dtype]
    return launcher + job + (["--dump", str(args.dump)] if args.dump is not None else [])


def follow(run: Run, job: Child) -> None:
    """Print each iteration when it is complete, until the job has ended."""
    started = time.monotonic()
    shown: set[int] = set()
    ended = False
    while not ended:
        time.sleep(POLL_SECONDS)
        ended = not job.running()  # asked before the last look, which then misses nothing
        for item in run.iterations():
            if item["complete"] and item["iteration"] not in shown:
                shown.add(item["iteration"])
                say(progress_line(item, time.monotonic() - started))


def stay(aggregator: Child) -> None:
    """Leave the aggregator up until Ctrl-C."""
    try:
        while aggregator.running():
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        say("")
