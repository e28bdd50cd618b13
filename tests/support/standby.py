"""A cluster that follows another one and takes its place when it is told to."""

from __future__ import annotations

from support.postgres import Postgres, tool
from support.process import run

FOLLOWS = "SELECT pid FROM pg_stat_replication WHERE application_name = %s AND sync_state = %s"
HAS_ALL = """
SELECT pid FROM pg_stat_replication
 WHERE application_name = %s AND replay_lsn >= pg_current_wal_lsn()
"""
WAIT = "ALTER SYSTEM SET synchronous_standby_names = '{}'"


class Standby(Postgres):
    """A standby, made of its primary's base backup when it is first started.

    Args:
        primary: whom it follows; another standby is made of it once it was promoted.
        port: on which it listens, if it is not to be any.
    """

    def __init__(self, primary: Postgres, port: int | None = None) -> None:
        # It would look for a primary that is back every five seconds.
        super().__init__(port=port, wal_retrieve_retry_interval="200ms")
        self.primary = primary
        self.name = f"standby_{self.port}"

    def fill(self) -> None:
        """See `Postgres.fill`: nothing is there until it is started."""

    def launch(self) -> None:
        """See `Program.launch`."""
        if not self.data.exists():
            source = self.primary.url("postgres", application_name=self.name)
            where = (f"--pgdata={self.data}", f"--dbname={source}")
            how = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync")
            run([tool("pg_basebackup"), *where, *how], self.folder)
        super().launch()

    def be_waited_for(self) -> None:
        """Let the primary acknowledge nothing any more that is not here too."""
        self.primary.execute(WAIT.format(self.name))
        self.primary.execute("SELECT pg_reload_conf()")
        self.wait(lambda: bool(self.primary.execute(FOLLOWS, self.name, "sync")))

    def has_all(self) -> bool:
        """Whether everything that the primary has is here."""
        return bool(self.primary.execute(HAS_ALL, self.name))

    def promote(self) -> None:
        """Take the primary's place: writes are taken when this returns."""
        run([tool("pg_ctl"), "promote", f"--pgdata={self.data}"], self.folder)

    def beside(self, url: str) -> str:
        """Return the primary's URL with this one as its other host."""
        primary = f"127.0.0.1:{self.primary.port}"
        return url.replace(primary, f"{primary},127.0.0.1:{self.port}")
