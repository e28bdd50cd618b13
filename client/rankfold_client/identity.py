"""Who reports: rank, world size and attempt, as given or as the launcher says."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from rankfold.partial import MAX_INDEX

_RANKS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))
# Launchers whose ranks are not shards in general: seeing one, guessing would be wrong silently.
_OTHERS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK")

log = logging.getLogger("rankfold")


@dataclass(frozen=True, slots=True)
class Identity:
    """The shard of one launch of the run.

    Attributes:
        rank: index of the data shard that reports.
        world_size: number of such shards; None where it is not known.
        attempt: which launch of the run this is, from 0.
    """

    rank: int
    world_size: int | None
    attempt: int


def identify(
    environment: Mapping[str, str],
    *,
    rank: int | None = None,
    world_size: int | None = None,
    attempt: int | None = None,
) -> Identity:
    """Return who this process is: what was given, then torchrun's word, then SLURM's.

    For the attempt, RANKFOLD_ATTEMPT comes before the launchers: a job that is started again by
    hand under the same run needs the next number, and no launcher knows it.

    The launcher's world size goes with the launcher's rank: where another rank was given, the
    world size is unknown unless it was given too. A process that nobody launched is rank 0 of 1.

    Args:
        environment: the process's environment variables.
        rank: index of the data shard; copies of a shard share it.
        world_size: number of data shards.
        attempt: which launch this is.

    Raises:
        ValueError: a number is none, is negative, or rank and world size contradict each other.
    """
    their_rank, their_world_size = _launched_as(environment)
    if rank is None:
        rank = 0 if their_rank is None else their_rank
        if their_rank is None:
            their_world_size = 1
            _warn_of_others(environment, world_size)
    elif rank != their_rank:
        their_world_size = None
    if world_size is None:
        world_size = their_world_size
    if attempt is None:
        attempt = _restarts(environment)
    for name, value, low in (("rank", rank, 0), ("attempt", attempt, 0)):
        _check_range(name, value, low)
    if world_size is not None:
        _check_range("world_size", world_size, 1)
        if rank >= world_size:
            raise ValueError(f"rank {rank} is not below world_size {world_size}")
    return Identity(rank, world_size, attempt)


def _warn_of_others(environment: Mapping[str, str], world_size: int | None) -> None:
    """Say aloud that every process of a job would report as rank 0."""
    seen = [name for name in _OTHERS if name in environment]
    if seen or (world_size or 1) > 1:
        log.warning(
            "no rank was given and neither RANK nor SLURM_PROCID is set%s: reporting as rank 0; "
            "pass rank= and world_size= to Reporter",
            f", though {seen[0]} is" if seen else "",
        )


def _launched_as(environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    for rank_name, size_name in _RANKS:
        rank = _integer(environment, rank_name)
        if rank is not None:
            return rank, _integer(environment, size_name)
    return None, None


def _restarts(environment: Mapping[str, str]) -> int:
    """Return how often the run was launched before: as RANKFOLD_ATTEMPT says, or the launchers.

    torchrun counts from 0 again when SLURM requeues the job, so a requeue counts for as many
    restarts as torchrun may make and the launch itself.
    """
    if environment.get("RANKFOLD_ATTEMPT"):
        return _integer(environment, "RANKFOLD_ATTEMPT") or 0
    requeued = _integer(environment, "SLURM_RESTART_COUNT") or 0
    restarted = _integer(environment, "TORCHELASTIC_RESTART_COUNT")
    if restarted is None:
        return requeued
    most = _integer(environment, "TORCHELASTIC_MAX_RESTARTS") or 0
    return requeued * (max(most, restarted) + 1) + restarted


def _integer(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be an integer, not {text!r}") from None


def _check_range(name: str, value: int, low: int) -> None:
    if type(value) is not int or not low <= value <= MAX_INDEX:
        raise ValueError(f"{name} must be an integer from {low} to 2^31-1, not {value!r}")
