"""The state of a served site as its processes report it: the config that each runs, and unusable backends."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from gateway.config import load
from gateway.errors import Misconfigured
from gateway.site.serve_lock import read_serving
from gateway.site.storage.backend_trouble import BackendTrouble, CombinedTrouble, combined
from gateway.timing import timing_from_environment


class ServerStatus(NamedTuple):
    serving: dict[str, Any] | None
    """The supervisor's process id, addresses and start time; None if the site is not served."""
    config: str
    """The version of the config in force; empty if it is not known."""
    other_configs: dict[str, str]
    """The version that each process runs which runs another one, by name of the process."""
    backend_troubles: dict[str, CombinedTrouble]
    """What the processes report to be wrong with backends, by name."""
    no_answer: str
    """Why the supervisor did not answer; empty if it did."""
    config_refused: dict[str, Any] | None = None
    """Why the config file was refused, as `Refusals.to_dict` returns it; None if it was not."""


def read_server_status(folder: Path) -> ServerStatus:
    """Ask the supervisor of the site in *folder* for its state. Blocking."""
    serving = read_serving(folder)
    if serving is None:
        return ServerStatus(None, "", {}, {}, "")
    try:
        health = _read_health(str(serving["metrics"]))
    except (OSError, ValueError) as error:
        return ServerStatus(serving, "", {}, {}, f"it does not answer: {error}")
    config, processes = str(health["config"]), dict(health["processes"])
    others = {name: each["config"] for name, each in processes.items() if each["config"] != config}
    reports = {name: _troubles(each.get("backends", {})) for name, each in processes.items()}
    return ServerStatus(serving, config, others, combined(reports), "", health.get("config_refused"))


def _troubles(reported: dict[str, Any]) -> dict[str, BackendTrouble]:
    """Return what one process reports. A process of an older version reports the reason alone."""
    return {
        backend: BackendTrouble(**each) if isinstance(each, dict) else BackendTrouble(str(each), unavailable=True)
        for backend, each in reported.items()
    }


def _read_health(address: str) -> dict[str, Any]:
    """Return the response of `/healthz`. Status 503 means that a process is not well; its body is the same."""
    seconds = timing_from_environment().processes.answer_seconds
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=seconds) as response:  # noqa: S310 (our own)
            raw = response.read()
    except urllib.error.HTTPError as error:
        raw = error.read()
    return dict(json.loads(raw))


def config_file_version(folder: Path) -> str:
    """Return the version of the site's config file, or `refused: ` and the reason if it is not valid."""
    try:
        return load(folder).version
    except Misconfigured as error:
        return f"refused: {error}"
