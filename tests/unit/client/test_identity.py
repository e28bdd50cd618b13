from __future__ import annotations

from typing import Any

import pytest

from rankfold_client.identity import Identity, identify
from rankfold_client.shards import Shard

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RESTART_COUNT": "2"}
SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "16", "SLURM_RESTART_COUNT": "1"}


@pytest.mark.parametrize(
    ("environment", "given", "who"),
    [
        ({}, {}, Identity(0, 1, 0)),
        (TORCHRUN, {}, Identity(3, 8, 2)),
        (SLURM, {}, Identity(5, 16, 1)),
        (TORCHRUN, {"rank": 1, "world_size": 2, "attempt": 0}, Identity(1, 2, 0)),
        (TORCHRUN, {"rank": 3}, Identity(3, 8, 2)),
        (TORCHRUN, {"rank": 1}, Identity(1, None, 2)),
        ({}, {"rank": 1}, Identity(1, None, 0)),
        ({}, {"world_size": 4}, Identity(0, 4, 0)),
        ({"RANK": "2"}, {}, Identity(2, None, 0)),
        (SLURM | TORCHRUN | {"TORCHELASTIC_MAX_RESTARTS": "3"}, {}, Identity(3, 8, 6)),
        (TORCHRUN | {"TORCHELASTIC_MAX_RESTARTS": "3"}, {}, Identity(3, 8, 2)),
        (TORCHRUN | {"RANKFOLD_ATTEMPT": "7"}, {}, Identity(3, 8, 7)),
        (TORCHRUN | {"RANKFOLD_ATTEMPT": ""}, {}, Identity(3, 8, 2)),
        (TORCHRUN | {"RANKFOLD_ATTEMPT": "7"}, {"attempt": 1}, Identity(3, 8, 1)),
    ],
)
def test_identity_is_what_was_given_then_what_the_launcher_says(
    environment: dict[str, str], given: dict[str, Any], who: Identity
) -> None:
    """Arguments win over torchrun, torchrun over SLURM, and nobody's rank is 0 of 1."""
    assert identify(environment, **given) == who


@pytest.mark.parametrize(
    ("environment", "given", "words"),
    [
        ({"RANK": "three", "WORLD_SIZE": "8"}, {}, "RANK must be an integer, not 'three'"),
        ({"RANK": "0", "WORLD_SIZE": ""}, {}, "WORLD_SIZE must be an integer, not ''"),
        ({"RANK": "8", "WORLD_SIZE": "8"}, {}, "rank 8 is not below world_size 8"),
        ({"RANK": "-1", "WORLD_SIZE": "8"}, {}, "rank must be an integer from 0"),
        ({"TORCHELASTIC_RESTART_COUNT": "-2"}, {}, "attempt must be an integer from 0"),
        ({}, {"world_size": 0}, "world_size must be an integer from 1"),
        ({}, {"rank": 2**31}, "rank must be"),
        ({}, {"rank": True}, "rank must be"),
    ],
)
def test_identity_refuses_nonsense(
    environment: dict[str, str], given: dict[str, Any], words: str
) -> None:
    """What cannot be a rank, a world size or an attempt is named in a ValueError."""
    with pytest.raises(ValueError, match=words):
        identify(environment, **given)


@pytest.mark.parametrize(
    ("environment", "given", "warned"),
    [
        ({}, {}, False),
        (TORCHRUN, {"world_size": 8}, False),
        ({}, {"world_size": 1}, False),
        ({}, {"rank": 0, "world_size": 2}, False),
        ({}, {"world_size": 2}, True),
    ],
)
def test_identity_warns_where_every_process_would_be_rank_0(
    environment: dict[str, str],
    given: dict[str, Any],
    warned: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One of several that nobody numbered is told so; a process of its own is not bothered."""
    identify(environment, **given)
    assert ("reporting as rank 0" in caplog.text) is warned


@pytest.mark.parametrize(
    ("given", "who"),
    [
        ({}, Identity(2, 4, 0)),
        ({"rank": 2}, Identity(2, 4, 0)),
        ({"rank": 1}, Identity(1, None, 0)),
        ({"world_size": 3}, Identity(2, 3, 0)),
        ({"rank": 5, "world_size": 6, "attempt": 1}, Identity(5, 6, 1)),
    ],
)
def test_identity_of_a_shard_comes_before_the_launchers(
    given: dict[str, Any], who: Identity
) -> None:
    """Torchrun numbers processes; a shard is what reports, and arguments win over both."""
    environment = {"RANK": "7", "WORLD_SIZE": "16"}
    assert identify(environment, shard=Shard(2, 4), **given) == who
