"""The trainer's side of Rankfold: compare tensors exactly and report what was found."""

from rankfold.errors import RankfoldError
from rankfold.partial import Partial, Worst

# What needs no torch, such as flushing a spool, works where there is none.
try:
    from rankfold_client.compare import compare
    from rankfold_client.compiled import warm_up
    from rankfold_client.reporter import Reporter
    from rankfold_client.shards import Shard
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise

__all__ = ["Partial", "RankfoldError", "Reporter", "Shard", "Worst", "compare", "warm_up"]


def __getattr__(name: str) -> object:
    """Say what is missing, where it is."""
    if name in __all__:
        raise ModuleNotFoundError(
            f"{__name__}.{name} needs torch: install the extra 'client', as the README says",
            name="torch",
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
