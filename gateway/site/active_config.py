"""The config in force: while a site is served, the one that its supervisor adopted last; otherwise the config file.

The supervisor writes a copy of the config that it adopted to the site's `run` folder. Every process that starts reads
that copy. So a process that starts during an edit, or after a bad one, runs under the same config as the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gateway.config import CONFIG_NAME, Config, load_text
from gateway.config.loading import read
from gateway.errors import EntrepotError
from gateway.metrics import gauge
from gateway.site.serve_lock import is_served
from gateway.site.storage.atomic_files import file_stamp, write_file
from gateway.timing import Timing

VERSION = gauge("entrepot_config_info", "Processes that run this version of the config.", ("version",))

IN_FORCE = "in-force.toml"

_log = logging.getLogger(__name__)


def load_active(folder: Path) -> Config:
    """Return the config under which the site in *folder* runs, or would run. Raises `Misconfigured`."""
    return load_text(active_text(folder), folder, str(folder / CONFIG_NAME))


def active_text(folder: Path) -> str:
    """Return the text of the config in force. Raises `Misconfigured`."""
    path = _path(folder)
    return read(path if path.exists() and is_served(folder) else folder / CONFIG_NAME)


def set_active(folder: Path, text: str) -> None:
    """Make *text* the config in force, for processes that start from now on. Only the supervisor calls this."""
    write_file(_path(folder), text)


async def follow_active_config(
    folder: Path, config: Config, adopt: Callable[[Config], Awaitable[None]], timing: Timing
) -> None:
    """Call *adopt* with each config that the site's supervisor puts in force from now on. Runs until cancelled, in a
    process that is not the supervisor's. A config that needs a restart is not adopted, and neither is one of a site
    that nobody serves."""
    seen: object = None
    while True:
        await timing.clock.sleep(timing.reload.follow_seconds)
        now = file_stamp(_path(folder))
        if now == seen or not await asyncio.to_thread(is_served, folder):
            continue
        try:
            new = await asyncio.to_thread(load_active, folder)
            restart = settings_needing_restart(config, new)
            if new.version != config.version and not restart:
                await adopt(new)
                config = new
        except EntrepotError as error:
            _log.warning("another config is in force, and could not be adopted: %s", error)
            continue
        if restart:
            _log.warning("another config is in force; to use it, open the site again: %s", ", ".join(restart))
        seen = now


def _path(folder: Path) -> Path:
    return folder / "run" / IN_FORCE


def set_version_metric(config: Config, before: Config | None = None) -> None:
    """Count this process, in the metric, among those that run *config* and no longer among those that run *before*."""
    if before is not None:
        VERSION.set(0, before.version)
    VERSION.set(1, config.version)


# ---- what a reload can change ---------------------------------------------------------------------------------------

_CHANGEABLE = {"uploads", "placement", "clusters", "lines", "policies", "rules"}
"""Tables that a reload adopts completely."""
_CHANGEABLE_SETTINGS = {"log.level", "log.format"}
_CHANGEABLE_OF_A_BACKEND = {"cluster", "drain"}
"""Settings that a reload adopts for a backend that is open already."""
_CHANGEABLE_OF_A_BUCKET = _CHANGEABLE_OF_A_BACKEND | {
    "endpoint", "region", "style", "profile", "access_key", "access_key_env", "secret_key_env", "secret_key_file",
    "session_token_env", "create_bucket", "ca_file", "calls", "deadline_seconds",
}  # fmt: skip
"""Settings that a reload adopts for a bucket that is open already: it is opened again (`connection_params.py`)."""


def settings_needing_restart(old: Config, new: Config) -> list[str]:
    """Return the key paths of the settings that differ and that only a restart adopts."""
    before, after = old.to_dict(), new.to_dict()
    before["site"]["cluster"], after["site"]["cluster"] = _home(old), _home(new)
    tables = sorted((before.keys() | after.keys()) - _CHANGEABLE - {"backends"})
    paths = [path for table in tables for path in _differing(before.get(table), after.get(table), table)]
    for name in sorted(before["backends"].keys() & after["backends"].keys()):
        one, other = before["backends"][name], after["backends"][name]
        changeable = _CHANGEABLE_OF_A_BUCKET if one["type"] == "s3" else _CHANGEABLE_OF_A_BACKEND
        differing = _differing(one, other, f"backends.{name}")
        paths += [path for path in differing if path.rpartition(".")[2] not in changeable]
    return [path for path in paths if path not in _CHANGEABLE_SETTINGS]


def _home(config: Config) -> str:
    """Return the cluster of the site's processes, also if the config has only one cluster and need not name it. An
    operator who adds a second cluster has to name it, which must not count as a change."""
    return config.topology(Path()).home


def _differing(before: Any, after: Any, path: str) -> list[str]:
    if before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(before.keys() | after.keys())
        return [each for key in keys for each in _differing(before.get(key), after.get(key), f"{path}.{key}")]
    return [path]
