"""`entrepot status` says which config the processes of a served site run, and what they cannot use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.site.admin import server_status
from tests.endpoint import run_entrepot, started
from tests.site.running import change_config, watch

SERVING = {"pid": 1, "endpoint": "http://a", "metrics": "http://m", "since": 1.0}


def process(config: str, **backends: str) -> dict[str, Any]:
    return {"pid": 2, "well": True, "restarts": 0, "config": config, **({"backends": backends} if backends else {})}


def told(monkeypatch: pytest.MonkeyPatch, **processes: dict[str, Any]) -> server_status.ServerStatus:
    monkeypatch.setattr(server_status, "read_serving", lambda folder: SERVING)
    monkeypatch.setattr(server_status, "_health", lambda address: {"config": "new", "processes": processes})
    return server_status.ask(Path("site"))


def test_who_runs_another_config_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(monkeypatch, keeper=process("new"), worker=process("old"), late=process(""))
    assert server_status.spell(found, "new") == [
        "config: worker runs old, and not new",
        "config: late runs none yet, and not new",
    ]
    plain = server_status.plain(found)
    assert plain["serving"]["config"] == "new"
    assert plain["other_configs"] == {"worker": "old", "late": ""}


def test_a_backend_that_some_cannot_use_is_told_once_for_each_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(
        monkeypatch, keeper=process("new", disk="gone"), one=process("new", disk="gone"), two=process("new", disk="x")
    )
    assert server_status.spell(found, "new") == [
        "backend disk: NOT USABLE as it should be: gone (says keeper, one)",
        "backend disk: NOT USABLE as it should be: x (says two)",
    ]


def test_one_that_serves_and_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(address: str) -> dict[str, Any]:
        raise ConnectionRefusedError("nobody listens")

    monkeypatch.setattr(server_status, "read_serving", lambda folder: SERVING)
    monkeypatch.setattr(server_status, "_health", silent)
    assert server_status.spell(server_status.ask(Path("site")), "new") == [
        "serving: it does not answer: nobody listens"
    ]


def test_status_shows_the_config_in_force_and_that_the_file_is_another(tmp_path: Path) -> None:
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
        assert f"config: entrepot.toml differs from what is in force ({version}): refused: " in shown
        assert "nowhere" in shown
    stopped = json.loads(run_entrepot("status", str(endpoint.dir), "--json", check=False).stdout or "{}")
    assert stopped.get("serving") is None
