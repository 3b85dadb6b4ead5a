"""The state of a served site as JSON and as text, for `entrepot status`."""

from __future__ import annotations

from typing import Any

from gateway.config import CONFIG_NAME
from gateway.site.admin.server_status import ServerStatus


def to_dict(status: ServerStatus) -> dict[str, Any]:
    """Return *status* as plain values, for JSON."""
    return {
        "serving": status.serving if status.serving is None else {**status.serving, "config": status.config},
        "other_configs": status.other_configs,
        "backend_troubles": {name: trouble.to_dict() for name, trouble in status.backend_troubles.items()},
        "config_refused": status.config_refused,
    }


def to_text(status: ServerStatus, file_version: str) -> list[str]:
    """Return the problems in *status* as lines for people, without those of backends, which stand beside what each
    backend holds. *file_version*: the result of `config_file_version`."""
    lines = [f"serving: {status.no_answer}"] if status.no_answer else []
    if status.config and file_version != status.config:
        why = file_version if file_version.startswith("refused") else _not_in_force(status.config_refused)
        lines.append(f"config: {CONFIG_NAME} differs from the config in force ({status.config}): {why}")
    lines += [
        f"config: {name} runs {version or 'none yet'}, not {status.config}"
        for name, version in status.other_configs.items()
    ]
    return lines


def _not_in_force(refused: dict[str, Any] | None) -> str:
    """Return why a valid config file is not in force."""
    if refused is None:
        return "it was not adopted yet"
    seconds = refused["again_seconds"]
    retry = "not retried before another edit or a restart" if seconds is None else f"retried in {seconds:.0f} s"
    return f"refused, and {retry}: {refused['why']}"
