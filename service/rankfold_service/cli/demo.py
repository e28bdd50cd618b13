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

from rankfold_service.cli.children import Child, ChildFailed
from rankfold_service.cli.demo_report import (
    PROJECT,
    RANKS,
    Item,
    Run,
    print_further,
    print_report,
    progress_line,
)

READY_SECONDS = 30.0
POLL_SECONDS = 0.25

say = functools.partial(print, flush=True)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `demo` to the command line."""
    parser = subparsers.add_parser(
        "demo",
        help="the whole way on real log-probs: two ranks, an aggregator, the gate",
        description="Starts an aggregator on a temporary store and a two-rank training job on "
        "the CPU. The job samples a small transformer with a cache, scores the same tokens by "
        "a full forward, and reports where the log-probs differ. Takes under a minute.",
        epilog="Exit: 0 where the demo worked (a gate that fails is its point), 1 where it did "
        "not or where --exact does not pass, 2 on a wrong option.",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--exact", action="store_true", help="score both by the same kernels")
    how.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="of the rollout's weights (default: %(default)s)",
    )
    parser.add_argument("--iterations", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--keep", action="store_true", help="keep the aggregator up until Ctrl-C")
    parser.add_argument("--dump", type=Path, metavar="DIR", help="write the compared tensors here")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write totals and gate here")
    parser.set_defaults(handler=run)


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
        except KeyboardInterrupt:
            print("rankfold demo: stopped", file=sys.stderr)
            return 130


def refuse(args: argparse.Namespace) -> str | None:
    """Return why the demo cannot run like this, or None where it can."""
    if importlib.util.find_spec("torch") is None:
        return "the training job needs torch: pip install 'rankfold[client,service]'"
    if args.iterations < 1:
        return "--iterations must be at least 1"
    if args.dump is not None:
        args.dump.mkdir(parents=True, exist_ok=True)
        if any(args.dump.iterdir()):
            return f"--dump: {args.dump} is not empty"
    return None


def show(args: argparse.Namespace, folder: Path) -> int:
    """Run the aggregator and the job, print what came of it, and judge it."""
    name = "exact" if args.exact else args.dtype
    address = free_address()
    url = f"http://{address}"
    serve = ["serve", "--listen", address, "--store", f"sqlite:///{folder}/rankfold.db"]
    with (
        Child("the aggregator", ["rankfold_service.cli.main", *serve], folder) as aggregator,
        httpx.Client(base_url=url, trust_env=False) as http,
    ):
        try:
            found = measure(args, Run(http, name), aggregator, folder)
        except httpx.HTTPError as error:
            raise aggregator.failure(f"does not answer as it should ({error})") from error
        if args.json is not None:
            args.json.write_text(json.dumps(found, indent=1) + "\n")
        print_report(found, exact=args.exact)
        print_further(url, name, keep=args.keep)
        if args.keep:
            stay(aggregator)
    return 0 if found["gate"]["gate"] in (("pass",) if args.exact else ("pass", "fail")) else 1


def free_address() -> str:
    """Return a host and port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def measure(args: argparse.Namespace, run: Run, aggregator: Child, folder: Path) -> Item:
    """Run the training job on the aggregator and return what the aggregator says of it."""
    wait_until_ready(run.http, aggregator)
    say(f"aggregator    {run.http.base_url}, ready")
    say(f"training job  {RANKS} ranks, {args.iterations} iterations")
    module = job_module(args, str(run.http.base_url), run.name)
    with Child("the training job", module, folder) as job:
        follow(run, job)
    return run.everything()


def job_module(args: argparse.Namespace, url: str, name: str) -> list[str]:
    """Return the training job as a module and its arguments."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), "-m"]
    job = ["rankfold_client.demo", "--url", url, "--project", PROJECT, "--run", name]
    job += ["--iterations", str(args.iterations), "--seed", str(args.seed)]
    job += ["--exact"] if args.exact else ["--dtype", args.dtype]
    return launcher + job + (["--dump", str(args.dump)] if args.dump is not None else [])


def wait_until_ready(http: httpx.Client, aggregator: Child) -> None:
    """Return when the aggregator is ready."""
    deadline = time.monotonic() + READY_SECONDS
    while aggregator.running() and time.monotonic() < deadline:
        try:
            if http.get("/-/ready").is_success:
                return
        except httpx.TransportError:
            pass  # it does not listen yet
        time.sleep(POLL_SECONDS)
    raise aggregator.failure("was not ready in time")


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
    say("The aggregator stays up: end it with Ctrl-C.")
    try:
        while aggregator.running():
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        say("")
