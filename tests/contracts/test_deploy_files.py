"""Files for operators in deploy/: every metric that they name exists, and Prometheus takes them.

Debian's package ``prometheus`` has promtool (``tests.unpacked``).
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from parley.telemetry.definitions import DEFINITIONS
from tests.peers.server import ROOT
from tests.unpacked import program

DEPLOY = ROOT / "deploy"
RULES = [DEPLOY / "prometheus" / name for name in ("alerts.yml", "slo.yml")]
DASHBOARD = DEPLOY / "grafana" / "parley.json"
METRIC = re.compile(r"\b(?:parley|unmute|process)_[a-z_]+\b")
# Parts of a histogram, by the name of the histogram.
PARTS = ("_bucket", "_sum", "_count")


def expressions() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every expression."""
    for path in RULES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                yield f"{path.name}: {rule.get('alert') or rule['record']}", rule["expr"]
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield f"{DASHBOARD.name}: {panel['title']}", target["expr"]
    table = (ROOT / "docs" / "how-to" / "metrics.md").read_text()
    for line in table.splitlines():
        if line.startswith("| ") and "rate(" in line:
            yield "metrics.md", line


def known() -> set[str]:
    found = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
    for each in DEFINITIONS:
        found |= {each.name + part for part in PARTS} if each.kind == "histogram" else {each.name}
    return found


@pytest.mark.parametrize(("place", "expression"), list(expressions()))
def test_an_expression_names_only_metrics_that_there_are(place: str, expression: str):
    named = {name for name in METRIC.findall(expression) if not name.startswith("parley:")}
    assert named <= known()


def test_a_bound_in_an_expression_is_one_of_its_histogram():
    bounds = {each.name: each.bounds for each in DEFINITIONS}
    for place, expression in expressions():
        for name, bound in re.findall(r'(\w+)_bucket\{le="([\d.]+)"', expression):
            assert float(bound) in bounds[name], place


def test_an_alert_says_what_it_means_and_what_to_do():
    rules = [rule for group in yaml.safe_load(RULES[0].read_text())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 10
    for rule in rules:
        assert set(rule["annotations"]) == {"summary", "action"}
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_the_panels_of_the_dashboard_do_not_overlap():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def promtool(*arguments: str, folder: Path) -> str:
    command = [program("promtool"), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def deployed(tmp_path: Path) -> Path:
    """Return a copy of the files, with a token."""
    folder = tmp_path / "prometheus"
    shutil.copytree(DEPLOY / "prometheus", folder)
    (folder / "operator_token").write_text("token")
    return folder


def test_prometheus_takes_the_configuration_and_its_rules(deployed: Path):
    said = promtool("check", "config", "prometheus.yml", folder=deployed)
    assert said.count("rules found") == len(RULES)


def test_alerts_fire_when_they_should(deployed: Path):
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml", folder=deployed)


def test_prometheus_can_read_every_expression_of_the_dashboard(tmp_path: Path):
    rules: list[dict[str, Any]] = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, (place, expression) in enumerate(expressions())
        if place.startswith(DASHBOARD.name)
    ]
    assert rules
    groups = {"groups": [{"name": "dashboard", "rules": rules}]}
    (tmp_path / "dashboard.yml").write_text(yaml.safe_dump(groups))
    promtool("check", "rules", "dashboard.yml", folder=tmp_path)
