from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from rankfold_client.shards import Shard


def mesh(names: tuple[str, ...] | None, shape: tuple[int, ...], place: Any) -> Any:
    """Stand in for a DeviceMesh; real ones are in the integration tests."""
    return SimpleNamespace(
        mesh_dim_names=names, shape=shape, ndim=len(shape), get_coordinate=lambda: place
    )


def shards(order: str, **sizes: int) -> list[Shard]:
    """Return the shard of each process of a Megatron job, by rank."""
    world = 1
    for size in sizes.values():
        world *= size
    given = {name: size for name, size in sizes.items() if name != "data"}
    return [Shard.of_sizes(rank, world, order=order, **given) for rank in range(world)]


def test_shard_of_sizes_in_megatrons_order() -> None:
    """Worked by hand: 2 tensor x 2 context x 2 data x 2 pipeline, tensor fastest."""
    found = shards("tp-cp-ep-dp-pp", tensor=2, context=2, data=2, pipeline=2)
    assert [shard.rank for shard in found] == [0, 0, 1, 1, 2, 2, 3, 3] * 2
    assert {shard.world_size for shard in found} == {4}
    # Tensor rank 0 of the last stage, which is the second half.
    assert [n for n, shard in enumerate(found) if shard.reports] == [8, 10, 12, 14]


@pytest.mark.parametrize(
    "order", ["-".join(p) for p in itertools.permutations(["tp", "cp", "dp", "pp"])]
)
def test_shard_of_sizes_counts_every_position_once(order: str) -> None:
    """In any order each shard has as many copies as there are, and one of them reports."""
    found = shards(order, tensor=3, context=2, data=4, pipeline=2)
    for rank in range(8):
        copies = [shard for shard in found if shard.rank == rank]
        assert len(copies) == 6
        assert sum(shard.reports for shard in copies) == 1
    assert {(shard.world_size) for shard in found} == {8}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rank": 0, "world_size": 6, "tensor": 4}, "world_size 6 is not divisible by 4"),
        ({"rank": 8, "world_size": 8}, "rank 8 is not from 0 to below world_size 8"),
        ({"rank": 0, "world_size": 8, "context": 0}, "size of cp must be an integer from 1"),
        ({"rank": 0, "world_size": 8, "pipeline": 2.0}, "size of pp must be an integer"),
        ({"rank": 0, "world_size": 8, "order": "tp-dp-pp"}, "must name tp, cp, dp and pp once"),
        ({"rank": 0, "world_size": 0}, "world_size 0"),
    ],
)
def test_shard_of_sizes_refuses_what_cannot_be(given: dict[str, Any], words: str) -> None:
    """A layout that is no layout is a ValueError that says why."""
    with pytest.raises(ValueError, match=words):
        Shard.of_sizes(**given)


@pytest.mark.parametrize(
    ("names", "shape", "place", "given", "shard"),
    [
        (("dp",), (4,), [3], None, Shard(3, 4)),
        (("dp", "tp"), (4, 2), [3, 0], None, Shard(3, 4)),
        (("dp", "tp"), (4, 2), [3, 1], None, Shard(3, 4, reports=False)),
        (("dp_replicate", "dp_shard", "cp"), (2, 3, 2), [1, 2, 1], None, Shard(11, 12)),
        (("pp", "dp", "tp"), (2, 4, 2), [0, 1, 0], None, Shard(1, 4, reports=False)),
        (("pp", "dp", "tp"), (2, 4, 2), [1, 1, 0], None, Shard(1, 4)),
        (("dp", "sp"), (4, 2), [2, 1], ["dp"], Shard(2, 4, reports=False)),
        (("dp", "sp"), (4, 2), [2, 1], ["dp", "sp"], Shard(5, 8)),
        (None, (4, 2), [2, 1], [0], Shard(2, 4, reports=False)),
        (("tp",), (8,), [5], None, Shard(0, 1, reports=False)),
    ],
)
def test_shard_of_mesh_is_its_place_along_the_data(
    names: tuple[str, ...] | None,
    shape: tuple[int, ...],
    place: list[int],
    given: Any,
    shard: Shard,
) -> None:
    """Copies share a rank, positions of one sequence do not, whatever else the mesh has."""
    assert Shard.of_mesh(mesh(names, shape, place), given) == shard


@pytest.mark.parametrize(
    ("names", "place", "given", "words"),
    [
        (("dp", "sp"), [0, 0], None, "along sp .* pass shards=.* of dp, sp"),
        (None, [0, 0], None, "along 0, 1 hold other positions or copies is not known"),
        (("dp", "tp"), None, None, "not in the mesh"),
        (("dp", "tp"), [0, 0], ["cp"], "shards must be a list of dp, tp, not"),
        (("dp", "tp"), [0, 0], [2], "shards must be a list of dp, tp, not"),
        (("dp", "tp"), [0, 0], "dp", "shards must be a list of dp, tp, not 'dp'"),
    ],
)
def test_shard_of_mesh_does_not_guess(
    names: tuple[str, ...] | None, place: Any, given: Any, words: str
) -> None:
    """Where a name says both or nothing, the trainer has to say."""
    with pytest.raises(ValueError, match=words):
        Shard.of_mesh(mesh(names, (2, 2), place), given)
