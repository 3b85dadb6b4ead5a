"""Which config is in force: while a site is served, the one that its supervisor adopted last; otherwise the file.

The supervisor keeps a copy of what it adopted in the site's `run` folder, which every process that starts reads: so one
that starts in the middle of an edit, or behind a bad one, runs what the others run.
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
    """The config that the site in *folder* runs under, or would. Raises `Misconfigured`."""
    return load_text(active_text(folder), folder, str(folder / CONFIG_NAME))


def active_text(folder: Path) -> str:
    """As it was written. Raises `Misconfigured`."""
    path = _path(folder)
    return read(path if path.exists() and is_served(folder) else folder / CONFIG_NAME)


def set_active(folder: Path, text: str) -> None:
    """From here on who starts reads *text*. The supervisor's alone."""
    write_file(_path(folder), text)


async def follow_active_config(
    folder: Path, config: Config, adopt: Callable[[Config], Awaitable[None]], timing: Timing
) -> None:
    """Have *adopt* told each config that whoever serves the site puts in force from here on, for a process that is not
    the supervisor's; until cancelled. What takes a restart is left alone, and so is what nobody serves."""
    seen: object = None
    while True:
        await timing.clock.sleep(timing.reload.follow_seconds)
        now = file_stamp(_path(folder))
        if now == seen or not await asyncio.to_thread(is_served, folder):
            continue
        try:
            new = await asyncio.to_thread(load_active, folder)
            fixed = settings_needing_restart(config, new)
            if new.version != config.version and not fixed:
                await adopt(new)
                config = new
        except EntrepotError as error:
            _log.warning("another config is in force, and could not be taken over: %s", error)
            continue
        if fixed:
            _log.warning("another config is in force, which takes opening the site anew: %s", ", ".join(fixed))
        seen = now


def _path(folder: Path) -> Path:
    return folder / "run" / IN_FORCE


def set_version_metric(config: Config, before: Config | None = None) -> None:
    """Count this process among those that run *config*, and no more among those that run *before*."""
    if before is not None:
        VERSION.set(0, before.version)
    VERSION.set(1, config.version)


# ---- what a reload can change ---------------------------------------------------------------------------------------

_CHANGEABLE = {"uploads", "placement", "clusters", "lines", "policies", "rules"}
"""Tables of which everything is taken over by a reload."""
_CHANGEABLE_SETTINGS = {"log.level"}
_CHANGEABLE_OF_A_BACKEND = {"cluster", "drain"}
"""Of one that stands already; and"""
_CHANGEABLE_OF_A_BUCKET = _CHANGEABLE_OF_A_BACKEND | {
    "endpoint", "region", "style", "profile", "access_key", "access_key_env", "secret_key_env", "secret_key_file",
    "session_token_env", "create_bucket", "ca_file", "calls", "deadline_seconds",
}  # fmt: skip
"""where that is a bucket: how it is reached, for then it is opened anew (`reach`)."""


def settings_needing_restart(old: Config, new: Config) -> list[str]:
    """The settings, by key path, that differ and that only a restart takes over."""
    before, after = old.plain(), new.plain()
    before["site"]["cluster"], after["site"]["cluster"] = _home(old), _home(new)
    tables = sorted((before.keys() | after.keys()) - _CHANGEABLE - {"backends"})
    found = [path for table in tables for path in _differing(before.get(table), after.get(table), table)]
    for name in sorted(before["backends"].keys() & after["backends"].keys()):
        one, other = before["backends"][name], after["backends"][name]
        changeable = _CHANGEABLE_OF_A_BUCKET if one["type"] == "s3" else _CHANGEABLE_OF_A_BACKEND
        differing = _differing(one, other, f"backends.{name}")
        found += [path for path in differing if path.rpartition(".")[2] not in changeable]
    return [path for path in found if path not in _CHANGEABLE_SETTINGS]


def _home(config: Config) -> str:
    """Where these processes stand, also where there is only one cluster and so nobody had to say it: who adds another
    one has to, and moves nobody by that."""
    return config.topology(Path()).home


def _differing(before: Any, after: Any, path: str) -> list[str]:
    if before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(before.keys() | after.keys())
        return [found for key in keys for found in _differing(before.get(key), after.get(key), f"{path}.{key}")]
    return [path]
