"""The alerts and the dashboard in `conf/` use metrics and labels that exist, and Prometheus accepts the rules."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from gateway.metrics.instruments import REGISTRY, Histogram, Instrument
from tests.pages import ROOT

ALERTS = ROOT / "conf" / "alerts.yml"
DASHBOARD = ROOT / "conf" / "grafana-dashboard.json"
ADDED = {"instance", "job", "le"}
"""Labels that Prometheus adds."""


def instruments() -> dict[str, Instrument]:
    """Every metric of every process, by the names that `/metrics` shows."""
    for module in (
        "gateway.cli.worker",
        *(f"gateway.site.processes.{each}" for each in ("keeper", "committer", "supervisor")),
    ):
        importlib.import_module(module)
    found: dict[str, Instrument] = {}
    for name, each in REGISTRY.instruments.items():
        suffixes = ("_bucket", "_sum", "_count") if isinstance(each, Histogram) else ("",)
        found |= {f"{name}{suffix}": each for suffix in suffixes}
    return found


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return list(group["rules"])


def queries() -> list[tuple[str, str]]:
    """Each expression, with the text that uses labels of its result."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    shown = [(each["expr"], each["legendFormat"]) for panel in panels for each in panel["targets"]]
    return shown + [(rule["expr"], " ".join(rule["annotations"].values())) for rule in rules()]


@pytest.mark.parametrize(("expression", "text"), queries())
def test_an_expression_names_metrics_and_labels_that_exist(expression: str, text: str) -> None:
    known = instruments()
    named = re.findall(r"entrepot_[a-z_]+", expression)
    assert named or expression.startswith("up{")
    labels = set(ADDED)
    for name in named:
        assert name in known, name
        labels |= set(known[name].labels)
    used = re.findall(r"\$labels\.([a-z_]+)", text) or re.findall(r"\{\{ ?([a-z_]+) ?\}\}", text)
    used += re.findall(r"[{,]\s*([a-z_]+)\s*[=!]", expression)
    assert set(used) <= labels, (used, labels)


def test_every_metric_that_operators_are_to_investigate_has_an_alert() -> None:
    alerted = {name for rule in rules() for name in re.findall(r"entrepot_[a-z_]+", rule["expr"])}
    page = (ROOT / "docs" / "operating.md").read_text()
    for line in page.splitlines():
        if line.startswith("| `entrepot_") and "**investigate" in line:
            assert alerted & set(re.findall(r"`(entrepot_[a-z_]+)`", line)), line


def test_every_alert_says_what_to_do() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]
        assert rule["labels"]["severity"] in {"critical", "warning"}


def test_prometheus_accepts_the_alerts() -> None:
    promtool = shutil.which("promtool")
    if promtool is None and os.environ.get("CI") != "true":
        pytest.skip("NO ALERT WAS CHECKED BY PROMETHEUS: there is no promtool; `make clients` installs it")
    done = subprocess.run([promtool or "promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout
