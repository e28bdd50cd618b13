"""The trainer's side of Rankfold: compare tensors exactly and report what was found."""

from rankfold.partial import Partial, Worst
from rankfold_client.compare import compare
from rankfold_client.reporter import Reporter

__all__ = ["Partial", "Reporter", "Worst", "compare"]
