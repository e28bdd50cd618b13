from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rankfold_client.launchers import launched_as

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8"}
SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "16"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}
PMI = {"PMI_RANK": "2", "PMI_SIZE": "4"}
PMIX = {"PMIX_RANK": "2", "PMIX_NAMESPACE": "x"}
MVAPICH = {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}


def place(environment: dict[str, str], **modules: Any) -> tuple[int, int | None] | None:
    """Return the rank and the size that launchers say."""
    told = launched_as(environment, {name.replace("_", "."): m for name, m in modules.items()})
    return None if told is None else (told.rank, told.world_size)


def group(rank: int, size: int) -> SimpleNamespace:
    """Stand in for torch.distributed with a default group."""
    return SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: rank,
        get_world_size=lambda: size,
    )


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, None),
        (TORCHRUN, (3, 8)),
        (SLURM, (5, 16)),
        (OPEN_MPI, (2, 4)),
        (PMI, (2, 4)),
        (PMIX, (2, None)),
        (MVAPICH, (1, 2)),
        (OPEN_MPI | PMIX, (2, 4)),
        (PMI | PMIX, (2, 4)),
        (TORCHRUN | SLURM | OPEN_MPI, (3, 8)),
        (SLURM | OPEN_MPI, (2, 4)),
        ({"RANK": "2"}, (2, None)),
        ({"WORLD_SIZE": "8"}, None),
    ],
)
def test_launcher_is_the_innermost(
    environment: dict[str, str], told: tuple[int, int | None] | None
) -> None:
    """Torchrun before MPI before SLURM; a size that nobody tells is not known."""
    assert place(environment) == told


@pytest.mark.parametrize(
    ("environment", "told"),
    [({}, (1, 2)), (SLURM, (1, 2)), (OPEN_MPI, (1, 2)), ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2))],
)
def test_launcher_is_torchs_default_group_where_torchrun_is_none(
    environment: dict[str, str], told: tuple[int, int]
) -> None:
    """Processes that a task spawned for itself are numbered by their group alone."""
    assert place(environment, torch_distributed=group(1, 2)) == told


def ray_train(rank: int, size: int) -> SimpleNamespace:
    """Stand in for ray.train in one of its workers."""
    context = SimpleNamespace(get_world_rank=lambda: rank, get_world_size=lambda: size)
    return SimpleNamespace(get_context=lambda: context)


def test_launcher_is_ray_train_inside_its_workers() -> None:
    """Where a job imports Ray and is none of its workers, Ray raises or says 0 of 1."""

    def refuse() -> None:
        raise RuntimeError("`get_context` cannot be used outside of a training function")

    assert place(SLURM, ray_train=ray_train(1, 2)) == (1, 2)
    assert place(TORCHRUN, ray_train=ray_train(1, 2)) == (3, 8)
    assert place(SLURM, ray_train=ray_train(0, 1)) == (5, 16)
    assert place(SLURM, ray_train=SimpleNamespace(get_context=refuse)) == (5, 16)
    with pytest.raises(ValueError, match=r"get_context\(\) says rank 1 of 2 but .* rank 0 of 2"):
        place({}, ray_train=ray_train(1, 2), torch_distributed=group(0, 2))


def test_launcher_is_nobody_before_there_is_a_group() -> None:
    """Torch is imported in every trainer, and says nothing yet."""
    silent = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False)
    absent = SimpleNamespace(is_available=lambda: False)
    assert place({}, torch_distributed=silent) is None
    assert place({}, torch_distributed=absent) is None


@pytest.mark.parametrize(
    ("environment", "modules", "words"),
    [
        (
            TORCHRUN,
            {"torch_distributed": group(2, 8)},
            (
                "RANK and WORLD_SIZE say rank 3 of 8 but the default group of torch.distributed "
                "says rank 2 of 8: pass rank= and world_size= to Reporter"
            ),
        ),
        (TORCHRUN, {"torch_distributed": group(3, 4)}, "rank 3 of 8 but .* rank 3 of 4"),
        (OPEN_MPI | PMI | {"PMI_RANK": "1"}, {}, "OMPI_.* rank 2 of 4 but PMI_.* rank 1 of 4"),
        (OPEN_MPI | PMIX | {"PMIX_RANK": "0"}, {}, "PMIX_RANK says rank 0 of unknown"),
        ({"OMPI_COMM_WORLD_RANK": "x"}, {}, "OMPI_COMM_WORLD_RANK must be an integer, not 'x'"),
    ],
)
def test_launchers_that_contradict_each_other_are_told(
    environment: dict[str, str], modules: dict[str, Any], words: str
) -> None:
    """Which of two is right is for the trainer to say, and the error says how."""
    with pytest.raises(ValueError, match=words):
        place(environment, **modules)
