"""Who reports: rank, world size and attempt, as given, or as mesh and launcher say."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from rankfold.partial import MAX_INDEX
from rankfold_client.launchers import launched_as, restarts
from rankfold_client.shards import Shard

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
    shard: Shard | None = None,
) -> Identity:
    """Return who this process is: what was given, then its shard, then the launcher's word.

    For the attempt, RANKFOLD_ATTEMPT comes before the launchers: a job that is started again by
    hand under the same run needs the next number, and no launcher knows it.

    A world size goes with the rank of the same source: where another rank was given, it is
    unknown unless it was given too. A process that nobody launched is rank 0 of 1.

    Args:
        environment: the process's environment variables.
        rank: index of the data shard; copies of a shard share it.
        world_size: number of data shards.
        attempt: which launch this is.
        shard: what this process holds of the data.

    Raises:
        ValueError: a number is none, is negative, or two contradict each other.
    """
    if not isinstance(shard, Shard | None):
        raise ValueError(f"shard must be a Shard, not {type(shard).__name__}")
    if rank is None or world_size is None:
        rank, world_size = _placed(environment, rank, world_size, shard)
    if attempt is None:
        attempt = restarts(environment)
    for name, value, low in (("rank", rank, 0), ("attempt", attempt, 0)):
        _check_range(name, value, low)
    if world_size is not None:
        _check_range("world_size", world_size, 1)
        if rank >= world_size:
            raise ValueError(f"rank {rank} is not below world_size {world_size}")
    return Identity(rank, world_size, attempt)


def _placed(
    environment: Mapping[str, str], rank: int | None, world_size: int | None, shard: Shard | None
) -> tuple[int, int | None]:
    """Return rank and world size, filling in what was not given."""
    place = shard or launched_as(environment)
    if rank is None and place is None:
        _warn_of_guess(world_size)
        return 0, 1 if world_size is None else world_size
    if place is None or rank not in (None, place.rank):
        return rank or 0, world_size
    return place.rank, place.world_size if world_size is None else world_size


def _warn_of_guess(world_size: int | None) -> None:
    """Say aloud that every process of a job would report as rank 0."""
    if (world_size or 1) > 1:
        log.warning(
            "no rank was given and no launcher tells one: reporting as rank 0; pass rank= and "
            "world_size= to Reporter"
        )


def _check_range(name: str, value: int, low: int) -> None:
    if type(value) is not int or not low <= value <= MAX_INDEX:
        raise ValueError(f"{name} must be an integer from {low} to 2^31-1, not {value!r}")
