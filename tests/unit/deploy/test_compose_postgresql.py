"""docker/compose.postgresql.yaml over compose.yaml: two aggregators, a database, a balancer."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.dockerfile import stages
from unit.deploy.composed import GIVEN, compose, needs_compose, read
from unit.deploy.files import DOCKER, PINNED, VERSION, unknown

FILES = ("compose.yaml", "compose.postgresql.yaml")
PASSWORDS = {"POSTGRES_PASSWORD": "theirs", "POSTGRES_OWNER_PASSWORD": "its owner's"}

pytestmark = needs_compose


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """Return the services of both files together."""
    found: dict[str, Any] = read(*FILES, **GIVEN, **PASSWORDS)["services"]
    return found


def test_services_are_the_ones_that_are_described(services: dict[str, Any]) -> None:
    """To those of compose.yaml come the database, its migration and the balancer."""
    alone = set(read("compose.yaml", **GIVEN)["services"])
    assert set(services) == alone | {"postgresql", "migrate", "haproxy"}


def test_services_are_hardened(services: dict[str, Any]) -> None:
    """As those of compose.yaml are; the database has one more folder that it may write to."""
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert set(service["tmpfs"]) <= {"/tmp", "/var/run/postgresql"}, name  # noqa: S108
        assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory"}, name
        assert PINNED.fullmatch(service["image"]), name
        assert {port["host_ip"] for port in service.get("ports", [])} <= {"127.0.0.1"}, name
        for mount in service.get("volumes", []):
            assert mount["type"] == "volume" or mount["read_only"], name
    assert services["postgresql"]["user"] == "postgres"


def test_aggregators_share_the_database_and_nothing_else(services: dict[str, Any]) -> None:
    """Two, without a volume or a port of their own, after the tables were made."""
    aggregator, migrate = services["aggregator"], services["migrate"]
    assert aggregator["deploy"]["replicas"] == 2
    assert "volumes" not in aggregator
    assert "ports" not in aggregator
    assert aggregator["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert aggregator["image"] == migrate["image"] == f"rankfold:{VERSION}"
    assert migrate["build"] == aggregator["build"]
    for service, role, password in (
        (aggregator, "rankfold", "theirs"),
        (migrate, "rankfold_owner", "its owner's"),
    ):
        given = service["environment"]
        store = urlsplit(given["RANKFOLD_STORE"])
        assert (store.scheme, store.username, store.hostname) == ("postgresql", role, "postgresql")
        assert store.path == f"/{services['postgresql']['environment']['POSTGRES_DB']}"
        assert given["PGPASSWORD"] == password
        assert unknown(given) == set()


def test_balancer_takes_the_aggregators_place(services: dict[str, Any]) -> None:
    """It is published where the aggregator was, finds each by its name and port, and is asked."""
    port = stages(DOCKER / "Dockerfile")[-1].last("EXPOSE")
    (published,) = services["haproxy"]["ports"]
    config = (DOCKER / "haproxy/haproxy.cfg").read_text()
    assert str(published["target"]) == port
    assert re.findall(r"^  bind :(\d+)$", config, re.MULTILINE) == [port]
    assert f" aggregator:{port} " in config
    assert f"http://haproxy:{port}" in services["trainer"]["command"]
    (mount,) = services["haproxy"]["volumes"]
    assert mount["source"] == str(DOCKER / "haproxy/haproxy.cfg")


@pytest.mark.parametrize("missing", PASSWORDS)
def test_passwords_have_to_be_given(missing: str) -> None:
    """There is none by default, and the refusal says what to do."""
    given = {name: word for name, word in PASSWORDS.items() if name != missing}
    done = compose(*FILES, environment=GIVEN | given)
    assert done.returncode != 0
    assert ".env.example" in done.stderr
