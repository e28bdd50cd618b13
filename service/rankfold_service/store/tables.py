"""What the embedded store keeps in its file: runs and their pages as rows, and the journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rankfold_service.store import Name
from rankfold_service.store.file import StoreFile
from rankfold_service.store.migrate import damaged

# No journal comes that far; what is beyond was never written, and leaves no number for what is.
LAST_ROW = 2**60

# Attempt, iteration and the packed page.
PageRow = tuple[int, int, bytes]


class RunRow(NamedTuple):
    """A run without its pages; `applied` is the newest row of the journal that is in it."""

    name: Name
    head: bytes
    applied: int


class Tables:
    """Reads and writes the rows of a store's file; the caller brings the transaction.

    Args:
        file: of the store.
    """

    def __init__(self, file: StoreFile) -> None:
        self._file = file
        self._ids: dict[Name, int] = {}

    def runs(self) -> Iterator[RunRow]:
        """Yield every run.

        Raises:
            StoreRefused: a number of the journal cannot be one.
        """
        self._ids.clear()
        query = "SELECT id, project, name, head, applied FROM run"
        for id_, project, run, head, applied in self._file.connection.execute(query):
            self._ids[project, run] = id_
            yield RunRow((project, run), head, self._checked(applied))

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    def page(self, name: Name, attempt: int, iteration: int) -> bytes:
        """Return a page of a run that was saved.

        Raises:
            LookupError: its row is gone.
        """
        query = "SELECT body FROM page WHERE run_id = ? AND attempt = ? AND iteration = ?"
        key = (self._ids[name], attempt, iteration)
        row = self._file.connection.execute(query, key).fetchone()
        if row is None:
            raise LookupError(key)
        return bytes(row[0])

    def save(self, run: RunRow, pages: Sequence[PageRow]) -> None:
        """Write a run, and those of its pages that changed."""
        execute, id_ = self._file.connection.execute, self._ids.get(run.name)
        if id_ is None:
            (id_,) = execute(
                "INSERT INTO run (project, name, head, applied) VALUES (?, ?, ?, ?) RETURNING id",
                (*run.name, run.head, run.applied),
            ).fetchone()
            self._ids[run.name] = id_
        else:
            execute(
                "UPDATE run SET head = ?, applied = ? WHERE id = ?", (run.head, run.applied, id_)
            )
        self._file.connection.executemany(
            "INSERT INTO page VALUES (?, ?, ?, ?) "
            "ON CONFLICT (run_id, attempt, iteration) DO UPDATE SET body = excluded.body",
            [(id_, *page) for page in pages],
        )

    def remove(self, name: Name) -> None:
        """Delete a run and its pages, if it was ever saved."""
        self._file.connection.execute("DELETE FROM run WHERE id = ?", (self._ids.pop(name, None),))

    def journal(self) -> Iterator[tuple[int, bytes]]:
        """Yield the rows of the journal with their numbers, in order.

        Raises:
            StoreRefused: a number cannot be one.
        """
        query = "SELECT seq, records FROM journal ORDER BY seq"
        for row, records in self._file.connection.execute(query):
            yield self._checked(row), records

    def _checked(self, row: int) -> int:
        if not 0 <= row <= LAST_ROW:
            raise damaged(self._file.path, f"no journal has a row {row}")
        return row

    def add(self, row: int, records: bytes) -> None:
        """Append a row to the journal; a transaction of its own unless one is open."""
        # The number is chosen, for SQLite would begin again at 1 once the journal is empty.
        self._file.execute("INSERT INTO journal (seq, records) VALUES (?, ?)", row, records)

    def trim(self, after: int, before: int) -> None:
        """Let go of the journal's rows between two."""
        query = "DELETE FROM journal WHERE seq > ? AND seq < ?"
        self._file.connection.execute(query, (after, before))
