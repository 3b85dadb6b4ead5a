"""What the processes of a served site say of themselves, for who looks at the site from outside: which config each of
them runs, and which backends it cannot use as it should."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from gateway.config import CONFIG_NAME, load
from gateway.errors import Misconfigured
from gateway.site.serve_lock import read_serving
from gateway.timing import timing_from_environment


class ServerStatus(NamedTuple):
    """How it was when somebody asked."""

    serving: dict[str, Any] | None
    """Who serves it and where; None where nobody does."""
    config: str
    """The version of the config in force there; empty where nobody said."""
    others: dict[str, str]
    """Processes that run another version, by name: which."""
    troubles: dict[str, dict[str, str]]
    """Backends that cannot be used as they should, by name: which processes say so, and why."""
    silent: str
    """Why who serves it did not answer; empty where it did."""
    refused: dict[str, Any] | None = None
    """Why the config's file was not taken over, as `Refusals.plain` says it."""


def ask(folder: Path) -> ServerStatus:
    """Ask who serves the site in *folder*. Blocking."""
    serving = read_serving(folder)
    if serving is None:
        return ServerStatus(None, "", {}, {}, "")
    try:
        told = _health(str(serving["metrics"]))
    except (OSError, ValueError) as error:
        return ServerStatus(serving, "", {}, {}, f"it does not answer: {error}")
    config, processes = str(told["config"]), dict(told["processes"])
    others = {name: each["config"] for name, each in processes.items() if each["config"] != config}
    troubles: dict[str, dict[str, str]] = {}
    for name, each in processes.items():
        for backend, why in each.get("backends", {}).items():
            troubles.setdefault(backend, {})[name] = why
    return ServerStatus(serving, config, others, troubles, "", told.get("config_refused"))


def _health(address: str) -> dict[str, Any]:
    seconds = timing_from_environment().processes.answer_seconds
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=seconds) as answer:  # noqa: S310 (our own)
            raw = answer.read()
    except urllib.error.HTTPError as refused:
        raw = refused.read()  # 503: alive, and a process is not well
    return dict(json.loads(raw))


def file_version(folder: Path) -> str:
    """The version of the config as it stands in the site's folder; why it would be refused, where it would be."""
    try:
        return load(folder).version
    except Misconfigured as error:
        return f"refused: {error}"


def plain(found: ServerStatus) -> dict[str, Any]:
    """Plain values."""
    serving = found.serving if found.serving is None else {**found.serving, "config": found.config}
    told = {"serving": serving, "other_configs": found.others, "backend_troubles": found.troubles}
    return {**told, "config_refused": found.refused}


def spell(found: ServerStatus, file: str) -> list[str]:
    """What people should know of it; nothing where all is well. *file*: `file_version`."""
    lines = [f"serving: {found.silent}"] if found.silent else []
    if found.config and file != found.config:
        more = file if file.startswith("refused") else _not_taken_over(found.refused)
        lines.append(f"config: {CONFIG_NAME} differs from what is in force ({found.config}): {more}")
    lines += [
        f"config: {name} runs {version or 'none yet'}, and not {found.config}" for name, version in found.others.items()
    ]
    for backend, said in found.troubles.items():
        for why in sorted(set(said.values())):
            names = ", ".join(name for name, each in said.items() if each == why)
            lines.append(f"backend {backend}: NOT USABLE as it should be: {why} (says {names})")
    return lines


def _not_taken_over(refused: dict[str, Any] | None) -> str:
    """Why a file that is sound is not in force."""
    if refused is None:
        return "it is not taken over yet"
    again = refused["again_seconds"]
    when = "takes another edit, or a restart" if again is None else f"is tried again in {again:.0f} s"
    return f"refused, and {when}: {refused['why']}"
