"""docker/compose.yaml, as Docker Compose itself reads it, and what it mounts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rankfold_service.settings import Settings
from support.dockerfile import stages
from unit.deploy.composed import GIVEN, compose, needs_compose, read
from unit.deploy.files import DOCKER, PINNED, VERSION, unknown

TOKENS = {"RANKFOLD_TOKENS_FILE": "/tokens.toml", "RANKFOLD_SCRAPE_TOKEN_FILE": "/token"}
OWN_IMAGES = {"aggregator": "Dockerfile", "trainer": "trainer/Dockerfile"}

pytestmark = needs_compose


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """Return the project of compose.yaml."""
    return read("compose.yaml", **GIVEN)


def seconds(duration: str) -> float:
    """Return a duration such as 1m30s in seconds."""
    match = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", duration)
    assert match is not None, duration
    return 60 * int(match[1] or 0) + int(match[2] or 0)


def test_services_are_the_ones_that_are_described(project: dict[str, Any]) -> None:
    """Nothing is started that is not meant to be."""
    names = {"aggregator", "prometheus", "alertmanager", "grafana", "trainer"}
    assert set(project["services"]) == names
    assert project["services"]["trainer"]["profiles"] == ["trainer"]


def test_services_are_hardened(project: dict[str, Any]) -> None:
    """Each has a read-only root, no capabilities, bounds, an exact version and no open port."""
    for name, service in project["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["tmpfs"] == ["/tmp"], name  # noqa: S108 - a folder of the container
        assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory"}, name
        assert PINNED.fullmatch(service["image"]), name
        assert {port["host_ip"] for port in service.get("ports", [])} <= {"127.0.0.1"}, name


def test_own_images_are_built_here(project: dict[str, Any]) -> None:
    """Both are built from the repository's root, and named by the version."""
    for name, dockerfile in OWN_IMAGES.items():
        service = project["services"][name]
        built = service["build"]
        assert Path(built["context"]) == DOCKER.parent
        assert Path(built["context"], built["dockerfile"]) == DOCKER / dockerfile
        assert service["image"].endswith(f":{VERSION}")
        (volume,) = service["volumes"]
        assert volume["target"] == stages(DOCKER / dockerfile)[-1].last("VOLUME")


def test_aggregator_has_time_to_finish(project: dict[str, Any]) -> None:
    """Docker waits longer than the aggregator does; its settings exist, its port is the image's."""
    service = project["services"]["aggregator"]
    assert seconds(service["stop_grace_period"]) > Settings.shutdown_grace
    assert unknown(service.get("environment", {})) == set()
    (port,) = service["ports"]
    assert str(port["target"]) == stages(DOCKER / "Dockerfile")[-1].last("EXPOSE")


def test_what_is_mounted_exists_and_is_read_only(project: dict[str, Any]) -> None:
    """Docker would make a folder of a file that is missing."""
    for service in project["services"].values():
        for mount in service.get("volumes", []):
            if mount["type"] == "bind":
                assert Path(mount["source"]).exists()
                assert mount["read_only"]


def test_prometheus_scrapes_and_alerts_the_services(project: dict[str, Any]) -> None:
    """Names and ports in its configuration are those of services, and its rules are mounted."""
    config = yaml.safe_load((DOCKER / "prometheus/prometheus.yml").read_text())
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    (found,) = jobs["rankfold"]["dns_sd_configs"]
    (port,) = project["services"]["aggregator"]["ports"]
    assert (found["names"], found["port"]) == (["aggregator"], port["target"])
    (alertmanagers,) = config["alerting"]["alertmanagers"]
    assert alertmanagers["static_configs"] == [{"targets": [address(project, "alertmanager")]}]
    targets = {mount["target"] for mount in project["services"]["prometheus"]["volumes"]}
    assert {f"/etc/prometheus/{name}" for name in config["rule_files"]} <= targets


def address(project: dict[str, Any], name: str) -> str:
    """Return where a service is found by the others."""
    (port,) = project["services"][name]["ports"]
    return f"{name}:{port['target']}"


def test_grafana_is_provisioned(project: dict[str, Any]) -> None:
    """Data sources are the services, alerts lead to Alertmanager, dashboards lie where it looks."""
    folder = DOCKER / "grafana/provisioning"
    sources = yaml.safe_load((folder / "datasources/rankfold.yaml").read_text())["datasources"]
    prometheus, alertmanager = sources
    assert prometheus["url"] == f"http://{address(project, 'prometheus')}"
    assert alertmanager["url"] == f"http://{address(project, 'alertmanager')}"
    assert prometheus["jsonData"]["alertmanagerUid"] == alertmanager["uid"]
    scraped = yaml.safe_load((DOCKER / "prometheus/prometheus.yml").read_text())["global"]
    assert prometheus["jsonData"]["timeInterval"] == scraped["scrape_interval"]
    grafana = project["services"]["grafana"]
    mounted = {mount["target"]: Path(mount["source"]) for mount in grafana["volumes"]}
    (provider,) = yaml.safe_load((folder / "dashboards/rankfold.yaml").read_text())["providers"]
    assert mounted[provider["options"]["path"]] == DOCKER / "grafana/dashboards"
    assert mounted["/etc/grafana/provisioning"] == folder
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (mounted[str(home.parent)] / home.name).is_file()


def test_password_has_to_be_given() -> None:
    """There is none by default, and the refusal says what to do."""
    done = compose("compose.yaml", environment={})
    assert done.returncode != 0
    assert ".env.example" in done.stderr


def test_tokens_are_secrets() -> None:
    """With tokens, the aggregator asks for them and Prometheus has one, both from files."""
    with_tokens = read("compose.yaml", "compose.tokens.yaml", **GIVEN, **TOKENS)
    services = with_tokens["services"]
    aggregator, prometheus = services["aggregator"], services["prometheus"]
    assert unknown(aggregator["environment"]) == set()
    (secret,) = aggregator["secrets"]
    assert aggregator["environment"]["RANKFOLD_TOKENS"] == secret["target"]
    assert {one["file"] for one in with_tokens["secrets"].values()} == set(TOKENS.values())
    sources = {mount["target"]: Path(mount.get("source", "")) for mount in prometheus["volumes"]}
    config = sources["/etc/prometheus/prometheus.yml"]
    (job, _) = yaml.safe_load(config.read_text())["scrape_configs"]
    (secret,) = prometheus["secrets"]
    assert job["authorization"] == {"credentials_file": secret["target"]}


def test_example_of_the_environment_is_whole() -> None:
    """`.env.example` names every variable that the files use, and no other."""
    files = DOCKER.glob("compose*.yaml")
    used = set(re.findall(r"\$\{(\w+)", "".join(path.read_text() for path in files)))
    example = (DOCKER / ".env.example").read_text()
    assert set(re.findall(r"^#?([A-Z_]+)=", example, re.MULTILINE)) == used
