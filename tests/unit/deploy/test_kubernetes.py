"""The Kubernetes manifests, as kubectl renders them, against the schemas of what they are for."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from rankfold_service.settings import Settings
from support.dockerfile import stages
from support.prometheus import needs_prometheus, run
from unit.deploy.files import DOCKER, PINNED, VERSION, unknown
from unit.deploy.rendered import OPERATOR, RELEASES, Objects, by_kind, rendered

# A config map is at most 1 MiB.
MOST_BYTES = 1 << 20


@pytest.fixture(scope="module")
def objects() -> Objects:
    """Return every object by its kind."""
    return by_kind("kubernetes")


def test_manifests_are_whole(objects: Objects) -> None:
    """The aggregator can be had without the operator's objects, which the rest are."""
    alone = {one["kind"] for one in rendered("kubernetes/aggregator")}
    assert alone == {"Namespace", "PersistentVolumeClaim", "Deployment", "Service"}
    assert set(objects) == alone | {"ConfigMap", *OPERATOR}
    namespaced = [one for kind, one in objects.items() if kind != "Namespace"]
    assert {one["metadata"]["namespace"] for one in namespaced} == {
        objects["Namespace"]["metadata"]["name"]
    }


@pytest.mark.parametrize("release", RELEASES)
def test_objects_keep_to_kubernetes_schema(objects: Objects, release: str) -> None:
    """Every field exists and has the type that it should, in old and new releases."""
    for kind, one in objects.items():
        if kind not in OPERATOR:
            kubernetes_validate.validate(one, release, strict=True)


def test_objects_keep_to_the_operators_schema(objects: Objects) -> None:
    """The operator's types take each object, and know every field of it."""
    # Its import takes seconds, which no other test should wait for.
    types = importlib.import_module("cloudcoil.models.prometheus_operator.v1")
    for kind in OPERATOR:
        known = getattr(types, kind).model_validate(objects[kind])
        assert known.model_dump(mode="json", by_alias=True, exclude_unset=True) == objects[kind]


@needs_prometheus
def test_rules_of_the_operator_are_rules(objects: Objects, tmp_path: Path) -> None:
    """Promtool takes them, and they are the ones that are tested."""
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps(objects["PrometheusRule"]["spec"]))
    done = run("promtool", "check", "rules", "--lint-fatal", path)
    assert done.returncode == 0, done.stdout + done.stderr
    tested = yaml.safe_load((DOCKER / "prometheus/rankfold.rules.yml").read_text())
    assert objects["PrometheusRule"]["spec"] == tested


def pod_of(objects: Objects) -> dict[str, Any]:
    """Return the description of the aggregator's pod."""
    pod: dict[str, Any] = objects["Deployment"]["spec"]["template"]["spec"]
    return pod


def test_one_aggregator_at_a_time_has_the_store(objects: Objects) -> None:
    """SQLite has one writer: one replica, gone before the next begins, on a volume of its own."""
    spec = objects["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert objects["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteOnce"]
    volumes = {one["name"]: one for one in pod_of(objects)["volumes"]}
    claim = volumes["store"]["persistentVolumeClaim"]["claimName"]
    assert claim == objects["PersistentVolumeClaim"]["metadata"]["name"]


def test_pod_keeps_to_the_restricted_standard(objects: Objects) -> None:
    """What the namespace enforces holds: not root, nothing to gain, a read-only root."""
    pod = pod_of(objects)
    (container,) = pod["containers"]
    user = int(stages(DOCKER / "Dockerfile")[-1].last("USER").partition(":")[0])
    context = pod["securityContext"]
    assert context["runAsNonRoot"]
    assert {context[name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {user}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not pod["automountServiceAccountToken"]
    assert "memory" in container["resources"]["limits"]
    assert PINNED.fullmatch(container["image"])
    assert container["image"].endswith(f":{VERSION}")


def test_pod_is_probed_and_has_time_to_finish(objects: Objects) -> None:
    """Probes ask for life and readiness by the port's name; stopping waits for what came in."""
    pod = pod_of(objects)
    (container,) = pod["containers"]
    (port,) = container["ports"]
    names = ("startup", "liveness", "readiness")
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in names}
    assert {get["port"] for get in probes.values()} == {port["name"]}
    assert {name: get["path"] for name, get in probes.items()} == {
        "startup": "/-/healthy",
        "liveness": "/-/healthy",
        "readiness": "/-/ready",
    }
    assert pod["terminationGracePeriodSeconds"] > Settings.shutdown_grace
    image = stages(DOCKER / "Dockerfile")[-1]
    assert str(port["containerPort"]) == image.last("EXPOSE")
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["store"] == image.last("VOLUME")
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert unknown(environment) == set()
    assert Path(environment["RANKFOLD_TOKENS"]).parent == Path(mounts["tokens"])


def test_service_and_monitor_select_what_they_should(objects: Objects) -> None:
    """The service leads to the pod, the monitor to the service, each by the other's labels."""
    service, monitor = objects["Service"], objects["ServiceMonitor"]["spec"]
    pod = objects["Deployment"]["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    (port,) = service["spec"]["ports"]
    (container,) = pod["spec"]["containers"]
    assert endpoint["port"] == port["name"]
    assert port["targetPort"] in {one["name"] for one in container["ports"]}
    assert endpoint["authorization"]["type"] == "Bearer"


def test_dashboards_are_all_there(objects: Objects) -> None:
    """The config map has each dashboard as it is checked in, and the label for a sidecar."""
    config_map = objects["ConfigMap"]
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    folder = DOCKER / "grafana/dashboards"
    assert config_map["data"] == {path.name: path.read_text() for path in folder.glob("*.json")}
    assert sum(map(len, config_map["data"].values())) < MOST_BYTES
