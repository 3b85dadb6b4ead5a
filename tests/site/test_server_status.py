"""`entrepot status` reports which config the processes of a served site run, and which backends they cannot use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.text import server_status as server_status_text
from gateway.site.admin import server_status
from tests.endpoint import run_entrepot, started
from tests.site.running import change_config, watch

SERVING = {"pid": 1, "endpoint": "http://a", "metrics": "http://m", "since": 1.0}


def process(config: str, **backends: dict[str, Any]) -> dict[str, Any]:
    return {"pid": 2, "well": True, "restarts": 0, "config": config, **({"backends": backends} if backends else {})}


def read_status(monkeypatch: pytest.MonkeyPatch, **processes: dict[str, Any]) -> server_status.ServerStatus:
    monkeypatch.setattr(server_status, "read_serving", lambda folder: SERVING)
    monkeypatch.setattr(server_status, "_read_health", lambda address: {"config": "new", "processes": processes})
    return server_status.read_server_status(Path("site"))


def test_processes_with_another_config_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    status = read_status(monkeypatch, keeper=process("new"), worker=process("old"), late=process(""))
    assert server_status_text.to_text(status, "new") == [
        "config: worker runs old, not new",
        "config: late runs none yet, not new",
    ]
    facts = server_status_text.to_dict(status)
    assert facts["serving"]["config"] == "new"
    assert facts["other_configs"] == {"worker": "old", "late": ""}


def test_a_backend_is_reported_once_with_each_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {"why": "gone", "unavailable": True, "since_ns": 1_700_000_000 * 10**9}
    status = read_status(
        monkeypatch,
        keeper=process("new", disk=gone),
        one=process("new", disk={**gone, "since_ns": gone["since_ns"] - 10**9}),
        two=process("new", disk={**gone, "why": "x"}, other={"why": "copies wait", "unavailable": False}),
        three=process("new", disk={"why": "not stamped", "unavailable": False, "since_ns": 0}),
    )
    assert server_status_text.to_text(status, "new") == []
    assert {name: trouble.to_text() for name, trouble in status.backend_troubles.items()} == {
        "disk": "UNAVAILABLE since 2023-11-14T22:13:19Z: gone (reported by keeper, one); x (reported by two)",
        "other": "DEGRADED: copies wait (reported by two)",
    }


def test_a_process_of_an_older_version_reports_the_reason_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    status = read_status(monkeypatch, keeper={**process("new"), "backends": {"disk": "gone"}})
    assert status.backend_troubles["disk"].to_text() == "UNAVAILABLE: gone (reported by keeper)"


def test_a_supervisor_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(address: str) -> dict[str, Any]:
        raise ConnectionRefusedError("nobody listens")

    monkeypatch.setattr(server_status, "read_serving", lambda folder: SERVING)
    monkeypatch.setattr(server_status, "_read_health", silent)
    assert server_status_text.to_text(server_status.read_server_status(Path("site")), "new") == [
        "serving: it does not answer: nobody listens"
    ]


def test_status_shows_the_config_in_force_and_that_the_file_differs(tmp_path: Path) -> None:
    with started(tmp_path / "site", ["--workers", "1"]) as (endpoint, _):
        facts = json.loads(run_entrepot("status", str(endpoint.dir), "--json").stdout)
        version = watch(endpoint, "/healthz")[1]["config"]
        assert (facts["config"], facts["config_file"], facts["serving"]["config"]) == (version, version, version)
        assert (facts["other_configs"], facts["backend_troubles"]) == ({}, {})
        shown = run_entrepot("status", str(endpoint.dir)).stdout
        assert f"\nconfig: {version}\n" in shown
        assert f"config={version}" in shown
        assert "differs" not in shown
        change_config(endpoint.dir, 'keep = ["disk"]', 'keep = ["nowhere"]')
        shown = run_entrepot("status", str(endpoint.dir)).stdout
        assert f"config: entrepot.toml differs from the config in force ({version}): refused: " in shown
        assert "nowhere" in shown
    stopped = json.loads(run_entrepot("status", str(endpoint.dir), "--json", check=False).stdout or "{}")
    assert stopped.get("serving") is None
