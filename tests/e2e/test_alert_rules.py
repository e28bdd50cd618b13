"""The alert rules and configurations that are shipped, judged by promtool and amtool."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.prometheus import needs_prometheus, run

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker/prometheus"
RULES_FILE = FOLDER / "rankfold.rules.yml"
TESTS = sorted((FOLDER / "tests").glob("*.yml"))
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES_FILE.read_text())["groups"]
    for rule in group["rules"]
}


def anchors(document: Path) -> set[str]:
    """Return what a link into a Markdown document may name, as its headings have it."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@needs_prometheus
@pytest.mark.parametrize(
    ("tool", "command", "path"),
    [
        ("promtool", ("check", "rules", "--lint-fatal"), RULES_FILE),
        ("promtool", ("check", "config", "--lint-fatal"), FOLDER / "prometheus.yml"),
        ("amtool", ("check-config",), ROOT / "docker/alertmanager/alertmanager.yml"),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else None,
)
def test_shipped_file_is_valid(tool: str, command: tuple[str, ...], path: Path) -> None:
    """The programs that read it have nothing to say against it."""
    done = run(tool, *command, path)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_rules_fire_when_they_should(path: Path) -> None:
    """Each scenario ends as it says, judged by promtool."""
    done = run("promtool", "test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_firing_and_quiet() -> None:
    """Each alert has a case in which it says something, compared whole, and one in which not."""
    cases = [
        case
        for path in TESTS
        for test in yaml.safe_load(path.read_text())["tests"]
        for case in test.get("alert_rule_test", [])
    ]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == set(ALERTS)
    assert {case["alertname"] for case in cases if case.get("exp_alerts") == []} == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_alert_tells_how_bad_it_is_what_happened_and_what_to_do(name: str) -> None:
    """Each alert has a severity, a summary, a description and a section in the runbook."""
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"].strip()
    assert rule["annotations"]["description"].strip()
    page, _, section = rule["annotations"]["runbook_url"].rpartition("/")[2].partition("#")
    assert section in anchors(ROOT / "docs" / page)
    assert section == name.lower()


def test_runbook_has_no_section_of_an_alert_that_is_gone() -> None:
    """The runbook's sections are the alerts, in their order."""
    sections = re.findall(r"^## (.+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)
    assert sections == list(ALERTS)
