"""Everything between a trainer and a pager: aggregator, Prometheus, Alertmanager, a receiver."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from e2e.faults.aggregator import wait_until
from support.prometheus import Alertmanager, Prometheus
from support.server import Server, free_port

from .listeners import Receiver, TextOnly

DOCKER = Path(__file__).parents[3] / "docker"
SCRAPE = "1s"
EVALUATION = "500ms"
PATIENCE = 60.0
# The aggregator is scraped twice, as two replicas of one store would be: in either format.
OPENMETRICS, TEXT = "rankfold", "rankfold-text"


def shipped(name: str) -> dict[str, Any]:
    """Return a configuration that is shipped in `docker/`."""
    config: dict[str, Any] = yaml.safe_load((DOCKER / name).read_text())
    return config


def alertmanager_config(receiver: str) -> dict[str, Any]:
    """Return the shipped configuration with a webhook for each receiver."""
    config = shipped("alertmanager/alertmanager.yml")
    for entry in config["receivers"]:
        entry["webhook_configs"] = [{"url": f"http://{receiver}/", "send_resolved": True}]
    return config


def prometheus_config(targets: Mapping[str, str], alertmanager: str) -> dict[str, Any]:
    """Return the shipped configuration, ten times as fast, with the addresses of a test.

    Args:
        targets: what is scraped, by job.
        alertmanager: where alerts go.
    """
    config = shipped("prometheus/prometheus.yml")
    config["global"] |= {"scrape_interval": SCRAPE, "evaluation_interval": EVALUATION}
    config["global"]["external_labels"]["rankfold_url"] = f"http://{targets[OPENMETRICS]}"
    config["rule_files"] = [str(DOCKER / "prometheus" / name) for name in config["rule_files"]]
    (managers,) = config["alerting"]["alertmanagers"]
    managers["static_configs"] = [{"targets": [alertmanager]}]
    config["scrape_configs"] = [
        {"job_name": job, "static_configs": [{"targets": [address]}]}
        for job, address in targets.items()
    ]
    return config


class Stage:
    """All of them, started, and stopped at the end.

    Args:
        folder: where the stores, configurations and logs lie.
    """

    def __init__(self, folder: Path) -> None:
        self.server = Server(f"sqlite:///{folder}/rankfold.db")
        self.receiver = Receiver()
        self.text = TextOnly(self.server.url)
        self.alertmanager = Alertmanager(
            folder / "alertmanager", alertmanager_config(self.receiver.address)
        )
        port = free_port()
        targets = {
            OPENMETRICS: f"127.0.0.1:{self.server.port}",
            TEXT: self.text.address,
            "prometheus": f"127.0.0.1:{port}",
        }
        config = prometheus_config(targets, self.alertmanager.address)
        self.prometheus = Prometheus(folder / "prometheus", config, port)
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with self._running as running:
            for part in (self.receiver, self.server, self.text, self.alertmanager, self.prometheus):
                running.enter_context(part)
            self.wait_until_scrapes(succeed=True)
            wait_until(
                lambda: self.prometheus.query(
                    "prometheus_notifications_alertmanagers_discovered == 1"
                ),
                "Prometheus knows the Alertmanager",
                PATIENCE,
            )
            self._running = running.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()

    def wait_until_scrapes(self, *, succeed: bool) -> None:
        """Wait until the latest scrape of either format has gone one way or the other."""
        jobs = f'up{{job=~"{OPENMETRICS}.*"}} == {int(succeed)}'
        wait_until(
            lambda: len(self.prometheus.query(jobs)) == 2,
            f"scrapes {'succeed' if succeed else 'fail'}",
            PATIENCE,
        )

    def hang(self) -> None:
        """Let the aggregator accept scrapes and answer none, until `go_on`."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End what `hang` began."""
        self._signal(signal.SIGCONT)

    def _signal(self, which: signal.Signals) -> None:
        assert self.server.process is not None
        self.server.process.send_signal(which)
