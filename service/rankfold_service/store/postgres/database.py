"""A PostgreSQL database: transactions over one connection, and its errors in our words."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from rankfold.errors import ConfigurationError, StoreUnavailable
from rankfold_service.store.postgres.watchdog import Watchdog

T = TypeVar("T")
Row = tuple[Any, ...]
Connection = psycopg.Connection[Row]
Cursor = psycopg.Cursor[Row]

_log = logging.getLogger("rankfold.store")

# What the driver says of a host that it has named already.
_AT_HOST = re.compile(r": connection failed: connection to server .* failed: (?:FATAL:  )?")

_ENCODE = "it cannot be read: write what is special in its user and password as %XX, / as %2F"

# What the URL says wins. Of several hosts the one that takes writes is meant.
DEFAULTS = {
    "application_name": "rankfold",
    "connect_timeout": "5",
    "keepalives_count": "3",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "target_session_attrs": "read-write",
    "tcp_user_timeout": "10000",
}
STATEMENT_SECONDS = 10.0
LOCK_SECONDS = 5.0
# Longer than the server lets a statement take: it does not answer at all.
SILENCE_SECONDS = 15.0
# What is said to take long: a migration, or a run that goes or comes whole.
LONG_SECONDS = 3600.0
TRIES = 5
RETRY_AFTER = 1.0

_BEGIN_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# Of the transaction, not the session: that holds behind a pooler too. A commit waits for the
# disk whatever the default of the database is; what waits for standbys stays as it is. To
# compile a statement takes many times as long as any of ours.
_SETTINGS = f"""
SELECT set_config('statement_timeout', '{STATEMENT_SECONDS * 1000:.0f}', true),
       set_config('lock_timeout', '{LOCK_SECONDS * 1000:.0f}', true),
       set_config('idle_in_transaction_session_timeout', '{STATEMENT_SECONDS * 1000:.0f}', true),
       set_config('synchronous_commit',
           replace(current_setting('synchronous_commit'), 'off', 'on'), true),
       set_config('jit', 'off', true)
"""
_LONG = f"""
SELECT set_config('statement_timeout', '{LONG_SECONDS * 1000:.0f}', true),
       set_config('lock_timeout', '{LOCK_SECONDS * 1000:.0f}', true)
"""
# Writers look rows up by their whole keys: tables that are not analysed yet mislead the planner.
_PLANNING = """
SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_seqscan', 'off', true)
"""


class Database:
    """Runs transactions over one connection, which it makes anew when it is lost.

    Nothing outlives a transaction, and behind a pooler no statement is prepared, so that each
    transaction may reach another of its sessions. Without one, planning once saves a third.

    Args:
        url: as libpq takes it.

    Attributes:
        name: what an error calls it.
        connected: is called whenever a connection was made.
        moment: the number of the moment that is read, no other's; None where none is.

    Raises:
        ConfigurationError: the URL cannot be understood.
    """

    def __init__(self, url: str) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as error:
            # Only this of what libpq says never repeats a part of a password.
            words = _words(error) if "query parameter" in str(error) else _ENCODE
            raise ConfigurationError(f"the store's URL: {words}") from error
        if re.search(r"://[^/]*/[^?]*@", url) or re.search(r"[^\d,]", f"{given.get('port', '')}"):
            raise ConfigurationError(f"the store's URL: {_ENCODE}")
        rest = {name: value for name, value in DEFAULTS.items() if name not in given}
        self._conninfo = make_conninfo(url, **rest)
        self.name = f"PostgreSQL database {given.get('dbname', '')!r} at {_places(given)}"
        self.connected: Callable[[], None] = lambda: None
        self._connection: Connection | None = None
        self.moment: int | None = None
        self._moments = count()
        self._watchdog = Watchdog()

    def write(self, function: Callable[[], T]) -> T:
        """Run a function that calls `send` and `rows` in one transaction, and commit it.

        A transaction that lost against another one or lost its connection is run again: the
        function must not depend on an earlier try.

        Raises:
            StoreUnavailable: the database is not reachable or refuses to go on; whether an
                attempt to commit has succeeded is not known.
        """

        def transaction() -> T:
            self.send(_PLANNING)
            result = function()
            self.send("COMMIT")
            return result

        self.end_reading()
        return self._repeated(_BEGIN_WRITE, transaction)

    def read(self, function: Callable[[], T]) -> T:
        """Run a function that calls `send` and `rows`; all sees one moment.

        That moment lasts: `rows` sees it until `end_reading`, or the next write or read.

        Raises:
            StoreUnavailable: the database is not reachable or refuses to go on.
        """
        self.end_reading()
        result = self._repeated(_BEGIN_READ, function)
        self.moment = next(self._moments)
        return result

    def change(self, function: Callable[[Connection], T]) -> T:
        """Run a function of a connection in one transaction of any length, and commit it.

        For scripts of several statements and for what takes long.

        Raises:
            StoreUnavailable: the database is not reachable or refuses to go on.
        """
        self.end_reading()
        try:
            connection = self._connect()
            with self._watchdog.over(connection.fileno(), LONG_SECONDS), connection.transaction():
                connection.execute(_LONG)
                return function(connection)
        except psycopg.Error as error:
            self._roll_back()
            raise self.unavailable(error) from error

    def end_reading(self) -> None:
        """End the moment that was read."""
        if self.moment is not None:
            self._roll_back()

    def send(self, statement: str, *values: Any) -> Cursor:
        """Send a statement; within `write` and `read` without waiting for its outcome."""
        return self._connect().execute(statement.encode(), values or None, binary=True)

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Return what a statement gives.

        Raises:
            StoreUnavailable: outside of `write` and `read`: the moment has gone.
        """
        if self.moment is None:
            return self.send(statement, *values).fetchall()
        try:
            with self._watchdog.over(self._connect().fileno(), SILENCE_SECONDS):
                return self.send(statement, *values).fetchall()
        except psycopg.Error as error:
            self._roll_back()
            raise self.unavailable(error) from error

    def unavailable(self, error: psycopg.Error) -> StoreUnavailable:
        """Return what a driver's error means to who sent a report."""
        return StoreUnavailable(f"{self.name}: {_words(error)}", retry_after=RETRY_AFTER)

    def close(self) -> None:
        """Close the connection."""
        self._drop()
        self._watchdog.close()

    def _repeated(self, begin: str, function: Callable[[], T]) -> T:
        """Run a transaction, again where that helps."""
        for tried in range(1, TRIES + 1):
            try:
                return self._transaction(begin, function)
            except psycopg.Error as last:
                error = _first(last)
                if tried == TRIES or not ((self._lost(error) and tried == 1) or _collided(error)):
                    raise self.unavailable(error) from error
                _log.warning("a transaction is run again: %s", _words(error))
        raise AssertionError  # the last try has raised

    def _transaction(self, begin: str, function: Callable[[], T]) -> T:
        try:
            connection = self._connect()
            with self._watchdog.over(connection.fileno(), SILENCE_SECONDS), connection.pipeline():
                self.send(begin)
                self.send(_SETTINGS)
                return function()
        except BaseException:
            self._roll_back()
            raise

    def _lost(self, error: psycopg.Error) -> bool:
        """Whether another connection may do better."""
        if isinstance(error, errors.ReadOnlySqlTransaction):
            self._drop()  # another server takes the writes now
        return self._connection is None

    def _connect(self) -> Connection:
        if self._connection is None:
            connection = psycopg.connect(self._conninfo, autocommit=True)
            try:
                with self._watchdog.over(connection.fileno(), SILENCE_SECONDS):
                    if _is_pooled(connection):
                        connection.prepare_threshold = None
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            self.connected()
        return self._connection

    def _roll_back(self) -> None:
        """End the transaction; a connection that cannot even do that is given up."""
        self.moment = None
        if self._connection is None:
            return
        try:
            with self._watchdog.over(self._connection.fileno(), SILENCE_SECONDS):
                self._connection.execute("ROLLBACK")
        except psycopg.Error:
            self._drop()

    def _drop(self) -> None:
        self.moment = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _is_pooled(connection: Connection) -> bool:
    """Whether a pooler stands between: what answers is not the process that greeted us."""
    ((answers,),) = connection.execute("SELECT pg_backend_pid()").fetchall()
    return bool(answers != connection.info.backend_pid)


def _first(error: psycopg.Error) -> psycopg.Error:
    """Return what went wrong first: leaving a broken pipeline raises an error of its own."""
    while isinstance(error.__context__, psycopg.Error):
        error = error.__context__
    return error


def _collided(error: psycopg.Error) -> bool:
    return isinstance(error, errors.DeadlockDetected | errors.SerializationFailure)


def _words(error: psycopg.Error) -> str:
    """Return the first line of what an error says; others repeat the statement.

    Of several hosts it is what each of them says.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    hosts = [_AT_HOST.sub(": ", line[2:]) for line in lines if line.startswith("- host: ")]
    return "; ".join(hosts) or lines[0]


def _places(given: Mapping[str, Any]) -> str:
    """Return where a database is, each host with its port, of what libpq makes of a URL."""
    hosts = str(given.get("host") or "localhost").split(",")
    ports = str(given.get("port") or "").split(",")
    ports = ports if len(ports) == len(hosts) else ports * len(hosts)
    return ",".join(f"{h}:{p or 5432}" for h, p in zip(hosts, ports, strict=False))


def columns(rows: Sequence[Row], width: int) -> list[list[Any]]:
    """Return rows as columns, for `unnest`."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width
