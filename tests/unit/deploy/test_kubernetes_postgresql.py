"""The component that makes replicas on PostgreSQL of the aggregator, and the job for its tables."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from support.dockerfile import stages
from unit.deploy.files import DOCKER, VERSION, unknown
from unit.deploy.rendered import OPERATOR, RELEASES, Objects, by_kind

FOLDERS = ("kubernetes/replicas", "kubernetes/migrate")


@pytest.fixture(scope="module")
def objects() -> Objects:
    """Return what is applied: the replicas and what watches them, and the job."""
    return by_kind(FOLDERS[0]) | by_kind(FOLDERS[1])


def pods(objects: Objects) -> list[dict[str, Any]]:
    """Return what describes the pods."""
    return [objects[kind]["spec"]["template"]["spec"] for kind in ("Deployment", "Job")]


@pytest.mark.parametrize("release", RELEASES)
def test_objects_keep_to_kubernetes_schema(objects: Objects, release: str) -> None:
    """Every field exists and has the type that it should, in old and new releases."""
    for kind, one in objects.items():
        if kind not in OPERATOR:
            kubernetes_validate.validate(one, release, strict=True)


def test_replicas_keep_nothing_themselves(objects: Objects) -> None:
    """There are several, replaced one by one, spread, and no volume is theirs."""
    spec = objects["Deployment"]["spec"]
    assert spec["replicas"] > 1
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
    }
    assert "PersistentVolumeClaim" not in objects
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert {volume["name"] for volume in pod["volumes"]} == {"tokens", "tmp", "postgresql"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {"tokens", "tmp", "postgresql"}
    labels = objects["Deployment"]["spec"]["selector"]["matchLabels"]
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == labels
    budget = objects["PodDisruptionBudget"]["spec"]
    assert budget["selector"]["matchLabels"] == labels
    assert budget["minAvailable"] < spec["replicas"]


def test_stores_come_from_a_secret(objects: Objects) -> None:
    """The aggregators' URL and the owner's are two of its keys; what TLS trusts is mounted."""
    keys = []
    for pod in pods(objects):
        (container,) = pod["containers"]
        assert unknown({one["name"]: "" for one in container["env"]}) == set()
        (store,) = [one for one in container["env"] if one["name"] == "RANKFOLD_STORE"]
        asked = store["valueFrom"]["secretKeyRef"]
        keys.append(asked["key"])
        (volume,) = [one for one in pod["volumes"] if one["name"] == "postgresql"]
        assert volume["secret"]["secretName"] == asked["name"]
        assert [item["key"] for item in volume["secret"]["items"]] == ["ca.pem"]
    assert keys == ["store", "owner"]


def test_job_is_as_careful_as_the_aggregator(objects: Objects) -> None:
    """The same image and user, nothing to gain, a read-only root; and it goes by itself."""
    aggregator, job = pods(objects)
    (one,), (other,) = aggregator["containers"], job["containers"]
    assert one["image"] == other["image"] == f"rankfold:{VERSION}"
    assert one["securityContext"] == other["securityContext"]
    context = {k: v for k, v in aggregator["securityContext"].items() if k != "fsGroupChangePolicy"}
    assert context == job["securityContext"]
    assert not job["automountServiceAccountToken"]
    assert "memory" in other["resources"]["limits"]
    assert objects["Job"]["spec"]["ttlSecondsAfterFinished"] > 0
    assert stages(DOCKER / "Dockerfile")[-1].command("ENTRYPOINT") == ["rankfold"]
    assert other["args"] == ["migrate"]
