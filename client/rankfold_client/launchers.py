"""What launchers say of a process: torchrun, Ray, MPI and SLURM, by environment or in memory."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

_TORCHRUN = ("RANK", "WORLD_SIZE")
# The same word by different makers; PMIx tells no size.
_MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", None),
)
_SLURM = ("SLURM_PROCID", "SLURM_NTASKS")


class Place(NamedTuple):
    """One process among all that a launcher started.

    Attributes:
        rank: its index.
        world_size: how many there are; None where that is not told.
        told_by: what says so.
    """

    rank: int
    world_size: int | None
    told_by: str


def launched_as(
    environment: Mapping[str, str], modules: Mapping[str, Any] = sys.modules
) -> Place | None:
    """Return what the innermost launcher says; None where nobody launched the process.

    That is torchrun, then Ray Train, then whoever made torch's default process group, then MPI,
    then SLURM: torchrun runs inside of the last two, and what mpirun starts inherits the
    variables of the SLURM task that runs mpirun.

    Args:
        environment: the process's environment variables.
        modules: what is imported; nothing is imported for this.

    Raises:
        ValueError: a number is none, or two that should say the same do not.
    """
    group = _group(modules)
    place = _told(environment, *_TORCHRUN) or _ray(modules)
    if place is None:
        return group or _mpi(environment) or _told(environment, *_SLURM)
    if group is not None and not _agree(place, group):
        raise _contradiction(place, group)
    return group or place


def restarts(environment: Mapping[str, str]) -> int:
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


def _told(environment: Mapping[str, str], rank_name: str, size_name: str | None) -> Place | None:
    rank = _integer(environment, rank_name)
    if rank is None:
        return None
    size = None if size_name is None else _integer(environment, size_name)
    return Place(rank, size, rank_name if size is None else f"{rank_name} and {size_name}")


def _mpi(environment: Mapping[str, str]) -> Place | None:
    """Return what MPI says; several variables of it are of one job and must agree."""
    places = [place for names in _MPI if (place := _told(environment, *names)) is not None]
    for place in places[1:]:
        if not _agree(places[0], place):
            raise _contradiction(places[0], place)
    return places[0] if places else None


def _ray(modules: Mapping[str, Any]) -> Place | None:
    """Return what Ray Train says inside one of its workers.

    Outside of them it raises, or in older versions says 0 of 1, which is what nobody says too.
    """
    train = modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        rank, size = context.get_world_rank(), context.get_world_size()
    except RuntimeError:
        return None
    return None if size == 1 else Place(rank, size, "ray.train.get_context()")


def _group(modules: Mapping[str, Any]) -> Place | None:
    """Return what torch's default process group says, where there is one."""
    distributed = modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    rank, size = distributed.get_rank(), distributed.get_world_size()
    return Place(rank, size, "the default group of torch.distributed")


def _agree(one: Place, other: Place) -> bool:
    sizes = {one.world_size, other.world_size} - {None}
    return one.rank == other.rank and len(sizes) <= 1


def _contradiction(one: Place, other: Place) -> ValueError:
    said = " but ".join(
        f"{place.told_by} say{'' if ' and ' in place.told_by else 's'} "
        f"rank {place.rank} of {'unknown' if place.world_size is None else place.world_size}"
        for place in (one, other)
    )
    return ValueError(f"{said}: pass rank= and world_size= to Reporter")


def _integer(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be an integer, not {text!r}") from None
