"""What many iterations fold into: over all ranks, and of each rank."""

from __future__ import annotations

from rankfold.fold import Fold, ScalarFold, Table
from rankfold.page import GLOBAL, Page


class Scope:
    """Folds over all ranks, and of each rank."""

    __slots__ = ("ranks", "table")

    def __init__(self) -> None:
        self.table = Table()
        self.ranks: dict[int, Table] = {}

    def add(self, rank: int, table: Table) -> None:
        """Fold what a rank reported; what is `GLOBAL` belongs to no rank."""
        self.table.add(table)
        self._add_of_rank(rank, table.bare())

    def add_page(self, page: Page) -> None:
        """Fold everything of an iteration."""
        self.table.add(page.table)
        for rank in page.ranks():
            self._add_of_rank(rank, page.table_of(rank))

    def _add_of_rank(self, rank: int, table: Table) -> None:
        if rank == GLOBAL:
            return
        known = self.ranks.get(rank)
        if known is None:
            known = self.ranks[rank] = Table()
        known.add(table)

    def of(self, rank: int | None) -> Table:
        """Return the folds of one rank, or over all of them."""
        return self.table if rank is None else self.ranks.get(rank, Table())


class Gains:
    """What one report adds of a rank, or of no rank: folds by iteration and name."""

    __slots__ = ("scalars", "series")

    def __init__(self) -> None:
        self.series: list[tuple[int, str, Fold]] = []
        self.scalars: list[tuple[int, str, ScalarFold]] = []

    def before(self, cut: int | None) -> Table:
        """Return the folds of the iterations below a cut, or of all."""
        table = Table()
        for iteration, series, fold in self.series:
            if cut is None or iteration < cut:
                table.add_series(series, fold)
        for iteration, key, scalar in self.scalars:
            if cut is None or iteration < cut:
                table.add_scalar(key, scalar)
        return table
