"""Which data shard a process holds, where several hold copies of one or parts of a sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

# Dimensions of a mesh along which every process has other positions, and along which all have the
# same. Of others, such as "sp" and "ep", both are in use.
_SHARDS = frozenset(
    {"data", "dp", "ddp", "fsdp", "hsdp", "dp_replicate", "dp_shard", "dp_cp", "dp_shard_cp"}
    | {"replicate", "shard", "context", "cp", "batch"}
)
_PIPELINES = frozenset({"pp", "pipe", "pipeline", "stage"})
_COPIES = frozenset({"tp", "tensor", "etp", "model", "mp"}) | _PIPELINES

MEGATRON_ORDER = "tp-cp-ep-dp-pp"


@dataclass(frozen=True, slots=True)
class Shard:
    """A data shard and the copy of it that a process holds.

    Tensor- and pipeline-parallel copies of a shard share its rank. Context-parallel processes
    hold other positions of the same samples: each is a shard of its own.

    Attributes:
        rank: index of the data-parallel x context-parallel shard.
        world_size: number of such shards.
        reports: true on one of its copies: the first along every dimension, and on the last
            stage of a pipeline, which is the one that has log-probs.
    """

    rank: int
    world_size: int
    reports: bool = True

    @classmethod
    def of_mesh(cls, mesh: DeviceMesh, shards: Sequence[str | int] | None = None) -> Self:
        """Return the shard of this process in a mesh of all the trainer's processes.

        Args:
            mesh: with a name for each dimension, unless `shards` gives indices.
            shards: the dimensions along which processes hold other positions; None takes those
                with a usual name, such as dp, dp_replicate, dp_shard, fsdp and cp.

        Raises:
            ValueError: this process is not in the mesh, or a dimension is not known.
        """
        names = mesh.mesh_dim_names or tuple(map(str, range(mesh.ndim)))
        place = mesh.get_coordinate()
        if place is None:
            raise ValueError("this process is not in the mesh")
        sizes = dict(zip(names, mesh.shape, strict=True))
        return cls._at(dict(zip(names, place, strict=True)), sizes, _chosen(names, shards))

    @classmethod
    def of_sizes(
        cls,
        rank: int,
        world_size: int,
        *,
        tensor: int = 1,
        pipeline: int = 1,
        context: int = 1,
        order: str = MEGATRON_ORDER,
    ) -> Self:
        """Return the shard of a process of Megatron-LM, by the sizes that it was started with.

        Args:
            rank: of the process among all, as torchrun says.
            world_size: number of all processes.
            tensor: processes that share a layer, `--tensor-model-parallel-size`.
            pipeline: stages, `--pipeline-model-parallel-size`.
            context: processes that share a sequence, `--context-parallel-size`.
            order: which of them vary fastest. Expert parallelism takes its processes from the
                data-parallel ones, so `ep` may stand in it and changes nothing.

        Raises:
            ValueError: a number cannot be right, or the sizes do not divide the world size.
        """
        sizes = {"tp": tensor, "cp": context, "pp": pipeline}
        for name, size in sizes.items():
            if type(size) is not int or size < 1:
                raise ValueError(f"the size of {name} must be an integer from 1, not {size!r}")
        copies = math.prod(sizes.values())
        if world_size < 1 or world_size % copies:
            raise ValueError(
                f"world_size {world_size} is not divisible by {copies}, which is tensor {tensor} "
                f"x pipeline {pipeline} x context {context}"
            )
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not from 0 to below world_size {world_size}")
        sizes["dp"] = world_size // copies
        names = [name for name in order.split("-") if name != "ep"]
        if sorted(names) != sorted(sizes):
            raise ValueError(f"order must name tp, cp, dp and pp once each, not {order!r}")
        place = {}
        for name in names:
            rank, place[name] = divmod(rank, sizes[name])
        slowest_first = {name: place[name] for name in reversed(names)}
        return cls._at(slowest_first, sizes, {"dp", "cp"})

    @classmethod
    def _at(
        cls, place: Mapping[str, int], sizes: Mapping[str, int], shards: frozenset[str] | set[str]
    ) -> Self:
        """Return the shard at a place, its dimensions in order from the slowest."""
        rank, number, reports = 0, 1, True
        for name, index in place.items():
            if name in shards:
                rank, number = rank * sizes[name] + index, number * sizes[name]
            else:
                reports &= index == (sizes[name] - 1 if name in _PIPELINES else 0)
        return cls(rank, number, reports)


def _chosen(names: Sequence[str], shards: Sequence[str | int] | None) -> frozenset[str]:
    """Return the dimensions of a mesh along which processes hold other positions."""
    if shards is not None:
        told = [names[d] if type(d) is int and -1 < d < len(names) else d for d in shards]
        if isinstance(shards, str) or not set(told) <= set(names):
            raise ValueError(f"shards must be a list of {', '.join(names)}, not {shards!r}")
        return frozenset(map(str, told))
    unknown = [name for name in names if name not in _SHARDS | _COPIES]
    if unknown:
        raise ValueError(
            f"whether processes along {', '.join(unknown)} hold other positions or copies is not "
            f"known: pass shards=[...] with those of {', '.join(names)} along which they differ"
        )
    return _SHARDS.intersection(names)
