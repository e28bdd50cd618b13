"""`rankfold compare`: two dumps of log-probs, compared by the client and judged as a run is."""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from rankfold.coverage import Selection
from rankfold.errors import ConfigurationError
from rankfold.facts import Facts
from rankfold.gate import Policy
from rankfold.ledger import Ledger
from rankfold.rules import RuleSet
from rankfold_service.cli import options
from rankfold_service.cli.api import Answer
from rankfold_service.cli.children import attended
from rankfold_service.cli.gate import EXIT_CODES, add_thresholds
from rankfold_service.cli.text import Screen
from rankfold_service.cli.verdict import verdict_text
from rankfold_service.http.decode import decode_report
from rankfold_service.judge import Ages, Judge

USAGE, INTERRUPTED = 2, 130
NEEDED = {".npz": ["numpy"], ".npy": ["numpy"], ".safetensors": ["safetensors", "numpy"]}

DESCRIPTION = """\
Compares two dumps of log-probs on this machine, without an aggregator: A as the trainer has them,
B as the rollout has them. The tensors are compared bit by bit as a trainer does it, and the verdict
is the one that `rankfold gate` would give on a run that had reported them.
"""

EPILOG = """\
Files are .npz, .npy, .safetensors, or .pt (.pth) with a tensor, or dicts and lists of tensors.
Names in dicts are joined by "/"; an .npy is called as its file is. A list's index is the
microbatch; in lists of lists, the iteration and the microbatch. Nothing in a file is run: pickled
objects are refused.

Float tensors are paired by name. Where each file has only one, these two are compared whatever
their names; --a-key and --b-key pair any two, of one file too. What only one file has makes the
verdict incomplete. Integers and strings are no log-probs; what is left out is told.

Without --mask, a tensor that is called mask, or ends in _mask, is the mask if it is the only one,
and a line says so. A mask has the tensors' shape and holds only 0 and 1; it may be in either file,
and where both have it, they must agree; --mask-file says whose counts. Token ids are looked for
likewise, in A and B.

A comparison needs torch: the extra 'compare' brings all. Tensors may be larger than memory: in
.safetensors, .npy and .pt they stay in the file until they are read, large ones of an .npz are
unpacked into the folder that TMPDIR names, one pair at a time.

examples:
  rankfold compare trainer.safetensors rollout.safetensors
  rankfold compare trainer.pt rollout.npz --a-key log_probs --b-key arr_0 --no-mask
  rankfold compare step-100.pt step-100.pt --a-key old_log_probs --b-key rollout_log_probs
  rankfold compare trainer.pt rollout.pt --mask-file batch.pt --mask response_mask --json

exit codes:
  0  pass
  1  fail: a position differs, or a threshold given here is exceeded
  2  wrong usage, a file that cannot be read, tensors that cannot be compared, no torch, or
     output that cannot be written
  3  incomplete or no data
"""


def add_parser(subparsers: options.Subparsers) -> None:
    """Add `compare` to the command line."""
    parser = options.new_parser(subparsers, "compare", run, DESCRIPTION, EPILOG)
    parser.add_argument("a", metavar="A", type=Path, help="the trainer's dump")
    parser.add_argument("b", metavar="B", type=Path, help="the rollout's dump")
    what = parser.add_argument_group("what is compared")
    what.add_argument("--a-key", metavar="NAME", help="this tensor of A; its name is the series")
    what.add_argument("--b-key", metavar="NAME", help="this tensor of B")
    what.add_argument(
        "--series",
        metavar="NAME",
        action="append",
        default=[],
        help="only the tensors of this name; may be given several times (default: all)",
    )
    what.add_argument("--mask", metavar="NAME", help="the tensor that is 1 where positions count")
    what.add_argument("--mask-file", metavar="FILE", type=Path, help="where the mask is")
    what.add_argument("--no-mask", action="store_true", help="all positions count")
    what.add_argument(
        "--token-ids",
        metavar="NAME",
        help="the integers that say which token is where, shown for the worst ones",
    )
    add_thresholds(parser.add_argument_group("how it is judged"))
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the verdict and return its exit code."""
    _check(args)
    command = [sys.executable, "-m", "rankfold_client.dumps", *_arguments(args)]
    code, written = attended(command, stdout=subprocess.PIPE)
    if code:
        return _failed(code)
    report, series = written.splitlines()
    answer = judged(report, tuple(json.loads(series)), _policy(args))
    if args.json:
        options.print_json(answer)
    else:
        print(verdict_text(answer, Screen.of(sys.stdout), offline=True))
    return EXIT_CODES[answer["gate"]]


def judged(body: bytes, series: tuple[str, ...], policy: Policy) -> Answer:
    """Return the verdict on a run that has made one report and is finished.

    Args:
        body: the report, which is checked as one that arrives over HTTP.
        series: which are expected in it.
        policy: what is allowed.

    Raises:
        RequestError: it is no report.
    """
    rules = RuleSet()
    report = decode_report(body, rules, max_items=options.MAX_INDEX)
    ledger = Ledger(report.project, report.run, Facts(rules))
    ledger.apply(report, time.time())
    ledger.finish(report.attempt)
    return dict(Judge(Ages(), time.time).gate(ledger, Selection(series=series), policy))


def _policy(args: argparse.Namespace) -> Policy:
    return Policy(
        max_mismatch_count=args.max_mismatch_count or 0,
        max_diff_max=args.max_diff_max,
        max_diff_mean=args.max_diff_mean,
    )


def _check(args: argparse.Namespace) -> None:
    """Refuse what contradicts itself, and what cannot work here."""
    if args.series and (args.a_key is not None or args.b_key is not None):
        raise ConfigurationError("--series names tensors of both files, --a-key and --b-key of one")
    if args.no_mask and (args.mask is not None or args.mask_file is not None):
        raise ConfigurationError("--no-mask contradicts --mask and --mask-file")
    files = [args.a, args.b, *([args.mask_file] if args.mask_file else [])]
    needed = ["torch", *(name for file in files for name in NEEDED.get(file.suffix.lower(), []))]
    missing = [name for name in dict.fromkeys(needed) if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"needs {' and '.join(missing)}: install the extra 'compare', as the README says; "
            "where the trainer runs, torch is there"
        )


def _arguments(args: argparse.Namespace) -> list[str]:
    """Return the options of the client's program, such that no value is taken for an option."""
    named = {"a-key": args.a_key, "b-key": args.b_key, "mask": args.mask}
    named |= {"mask-file": args.mask_file, "token-ids": args.token_ids}
    given = [f"--{name}={value}" for name, value in named.items() if value is not None]
    given += [f"--series={name}" for name in args.series]
    return [*given, *(["--no-mask"] if args.no_mask else []), "--", str(args.a), str(args.b)]


def _failed(code: int) -> int:
    """Return the exit code where there is no verdict; never one that a verdict has."""
    if code in (USAGE, INTERRUPTED):
        return code  # it has said why
    reason = f"code {code}" if code > 0 else signal.Signals(-code).name
    hint = {
        -signal.SIGKILL: ": was there too little memory?",
        -signal.SIGBUS: ": a file became shorter while it was read, or its disk failed",
    }.get(code, "")
    print(f"rankfold compare: the comparison ended with {reason}{hint}", file=sys.stderr)
    return USAGE
