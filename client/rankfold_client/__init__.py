"""The trainer's side of Rankfold: compare tensors exactly and report what was found."""

from rankfold.partial import Partial, Worst
from rankfold_client.compare import compare

__all__ = ["Partial", "Worst", "compare"]
