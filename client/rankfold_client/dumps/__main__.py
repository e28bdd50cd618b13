"""`python -m rankfold_client.dumps A B`: what `rankfold compare` runs, where torch is.

It writes two lines: the report that a trainer would have sent, and the list of the series to judge.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rankfold_client.dumps.choosing import Pair, Plan, Wish, plan
from rankfold_client.dumps.comparing import report, run_name
from rankfold_client.dumps.entries import DumpError
from rankfold_client.dumps.opening import open_dump
from rankfold_client.report import printable

DONE, REFUSED, INTERRUPTED = 0, 2, 130
CLEAR_LINE = "\r\x1b[K"


def main(argv: Sequence[str] | None = None) -> int:
    """Compare two dumps and return the exit code."""
    args = _parser().parse_args(argv)
    try:
        with _interruptible():
            written = _compared(args)
            sys.stdout.buffer.write(written)
            sys.stdout.buffer.flush()
    except DumpError as error:
        _say(str(error))
        return REFUSED
    except MemoryError:
        _say("it takes more memory than there is: save .safetensors, which stays in the file")
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return DONE


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C come while the body runs.

    The command starts this program with SIGINT blocked, for torch takes long to import, and what
    is interrupted there shows where.
    """
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="rankfold compare", allow_abbrev=False)
    made.add_argument("a", metavar="A", type=Path)
    made.add_argument("b", metavar="B", type=Path)
    made.add_argument("--a-key")
    made.add_argument("--b-key")
    made.add_argument("--series", action="append", default=[])
    made.add_argument("--mask")
    made.add_argument("--mask-file", type=Path)
    made.add_argument("--no-mask", action="store_true")
    made.add_argument("--token-ids")
    return made


def _compared(args: argparse.Namespace) -> bytes:
    """Return what is written of a comparison."""
    a = open_dump(args.a)
    b = a if args.b == args.a else open_dump(args.b)
    wish = Wish(
        a_key=args.a_key,
        b_key=args.b_key,
        series=tuple(args.series),
        mask=args.mask,
        mask_dump=None if args.mask_file is None else open_dump(args.mask_file),
        unmasked=args.no_mask,
        token_ids=args.token_ids,
    )
    chosen = plan(a, b, wish)
    for note in chosen.notes:
        _say(note)
    try:
        body = report(chosen, run_name(a, b), lambda number, pair: _progress(number, pair, chosen))
    finally:
        if sys.stderr.isatty():
            print(CLEAR_LINE, end="", file=sys.stderr, flush=True)  # noqa: T201
    return b"\n".join([body, json.dumps(chosen.series).encode(), b""])


def _progress(number: int, pair: Pair, chosen: Plan) -> None:
    """Show on a terminal which pair is compared, until the next one is."""
    if sys.stderr.isatty():
        text = f"comparing {number + 1} of {len(chosen.pairs)}: {pair.series}"
        print(CLEAR_LINE + printable(text), end="", file=sys.stderr, flush=True)  # noqa: T201


def _say(text: str) -> None:
    """Write a line to standard error, whatever is in the names that it tells."""
    line = printable(" ".join(text.split()))
    with suppress(OSError):  # a full disk of what is said changes no verdict
        print(f"rankfold compare: {line}", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
