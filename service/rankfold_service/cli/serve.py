"""`rankfold serve`: puts the aggregator together and runs it until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from types import FrameType

import uvicorn

from rankfold import __version__
from rankfold.errors import RankfoldError
from rankfold_service import collector
from rankfold_service.aggregate import Aggregator
from rankfold_service.cli import options
from rankfold_service.cli.cautions import open_to_others, unknown_variables
from rankfold_service.cli.listening import bound, url_of
from rankfold_service.cli.logs import configure_logging
from rankfold_service.cli.protocol import ReportProtocol
from rankfold_service.cli.rules import load_rules
from rankfold_service.exposition import Exposition
from rankfold_service.http.app import create_app
from rankfold_service.http.auth import Tokens
from rankfold_service.http.lane import FastLane
from rankfold_service.http.parts import Parts
from rankfold_service.judge import Ages
from rankfold_service.retention import Retention
from rankfold_service.settings import Settings, add_settings, read_settings
from rankfold_service.store.opening import open_store
from rankfold_service.store.urls import without_password
from rankfold_service.telemetry import Telemetry
from rankfold_service.writer import Writer

# Longer than trainers pause between reports, so that their connections are still there.
KEEP_ALIVE_SECONDS = 75
BACKLOG = 2048
TIDY_SECONDS = 60.0
SWITCH_SECONDS = 0.001

Tidy = Callable[[], Awaitable[object]]

DESCRIPTION = """\
Runs the aggregator: takes reports over HTTP, makes them durable, answers reads and scrapes. Prints
where it listens once it does; logs go to standard error. SIGTERM and Ctrl-C make it finish what it
has received, and end.
"""

EPILOG = """\
Each option is an environment variable too: RANKFOLD_<NAME>. An option wins.

examples:
  rankfold serve
  rankfold serve --listen 0.0.0.0:9814 --store sqlite:////var/lib/rankfold/rankfold.db
  rankfold serve --store postgresql://rankfold@db.example/rankfold
  rankfold serve --listen [::1]:0 --store memory:// --log-format text

exit codes: 0 stopped, 1 failed, 2 wrong usage or a setting, file or store that cannot be used,
4 stopped, but the disk took nothing more (what was acknowledged is in the store's journal), or
the store's file was removed or cut off under the aggregator: a line says what to do
"""

_log = logging.getLogger("rankfold.serve")


def add_parser(subparsers: options.Subparsers) -> None:
    """Add `serve` to the command line."""
    add_settings(options.new_parser(subparsers, "serve", run, DESCRIPTION, EPILOG))


def run(args: argparse.Namespace) -> int:
    """Run the aggregator and return its exit code."""
    settings = read_settings(args, os.environ)
    configure_logging(settings.log_level, settings.log_format)
    for caution in unknown_variables(os.environ):
        _log.warning(caution)
    with bound(settings.host, settings.port) as listener, assembled(settings) as (app, tidy):
        if settings.tokens is None and open_to_others(listener):
            _log.warning("whoever reaches this address may do everything: --tokens bounds it")
        server = Server(app, settings, listener, tidy)
        tune_interpreter()
        server.run(sockets=[listener])
    _log.info("stopped")
    return 0


@contextlib.contextmanager
def assembled(settings: Settings) -> Iterator[tuple[FastLane, Tidy]]:
    """Open what the settings name, yield the application and its housekeeping, and close it."""
    rules = load_rules(settings.rules)
    tokens = Tokens.load(settings.tokens) if settings.tokens else Tokens()
    telemetry = Telemetry()
    with stoppable():
        store = open_store(
            settings.store,
            rules,
            keep_iterations=settings.keep_iterations,
            checkpoint_bytes=settings.checkpoint_bytes,
        )
    writer = Writer(
        store,
        queue_limit=settings.queue_limit,
        max_wait=settings.max_wait,
        observe_commit=telemetry.observe_commit,
        after_commit=collector.set_aside,
    )
    telemetry.watch_queue(lambda: writer.depth)
    retention = Retention(settings.retain_age, settings.retain_bytes)
    aggregator = Aggregator(writer, rules, ages(settings), retention, time.time)
    telemetry.watch_damaged(lambda: aggregator.damaged)
    exposition = Exposition(aggregator.look, telemetry, settings.scrape_cache)
    writer.start()
    try:
        parts = Parts(aggregator, exposition, telemetry, tokens, settings)
        yield create_app(parts), aggregator.forget
    finally:
        writer.close()


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Let a wish to stop end the process as a success while there is no server to stop yet.

    The first process of a container has no such end of its own.
    """

    def stop(*_: object) -> None:
        # Nothing is logged here: the signal may come in the middle of another line of the log,
        # and a stream that is written to twice at once raises what the log then swallows.
        raise SystemExit(0)

    with handled(stop):
        try:
            yield
        except SystemExit:
            _log.info("stopped")
            raise


@contextlib.contextmanager
def handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Have a handler called for the signals by which people and services say to stop."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


def tune_interpreter() -> None:
    """Let the collector look seldom, and threads wait less for a turn.

    The interpreter lets a thread that waits for its turn wait for 5 ms by default, each time that a
    call of SQLite returns.
    """
    collector.begin()
    sys.setswitchinterval(SWITCH_SECONDS)


async def tidy_often(tidy: Tidy) -> None:
    """Do the housekeeping once a minute; what fails is logged and tried again."""
    while True:
        try:
            await tidy()
        except RankfoldError as error:
            _log.warning("runs could not be forgotten: %s", error)
        await asyncio.sleep(TIDY_SECONDS)


async def look_at_all_often() -> None:
    """Free once an hour what only the collector frees."""
    while True:
        await asyncio.sleep(collector.LOOK_SECONDS)
        collector.look_at_all()


def ages(settings: Settings) -> Ages:
    """Return when silence matters."""
    return Ages(
        stale=settings.stale_after,
        leave_finished=settings.finished_leave_after,
        leave_stale=settings.stale_leave_after,
    )


class Server(uvicorn.Server):
    """Says where it listens, and ends as a success when it is told to stop."""

    def __init__(
        self, app: FastLane, settings: Settings, listener: socket.socket, tidy: Tidy
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="auto",
                http=partial(ReportProtocol, app.take),  # type: ignore[arg-type]  # called as a class is
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=math.ceil(settings.shutdown_grace),
            )
        )
        self._url = url_of(listener)
        self._store = settings.store
        self._tidy = tidy
        self._housekeeping: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so where a script can read it."""
        await super().startup(sockets)
        print(f"rankfold: listening on {self._url}", flush=True)
        self._housekeeping = [
            asyncio.create_task(tidy_often(self._tidy)),
            asyncio.create_task(look_at_all_often()),
        ]
        _log.info("started", extra={"version": __version__, "store": without_password(self._store)})

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the housekeeping, then what uvicorn stops."""
        for task in self._housekeeping:
            task.cancel()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals as the wish to stop; the original would end the process by them after."""
        with handled(self.handle_exit):
            yield
