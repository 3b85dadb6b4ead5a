"""From `entrepot.toml` to a `Config`. All that is wrong is said at once: file, key path, reason."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.config.models import Config
from gateway.errors import Misconfigured
from gateway.topology import Problem

CONFIG_NAME = "entrepot.toml"
CONFIG_BYTES_MAX = 1 << 20

_PLAIN = {
    "extra_forbidden": "there is no such setting",
    "missing": "is missing",
    "bool_type": "must be true or false",
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
}


def load(folder: Path) -> Config:
    """The config of the site in *folder*. Raises `Misconfigured`, whose one argument lists every problem."""
    path = folder / CONFIG_NAME
    try:
        with path.open("rb") as file:
            raw = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise Misconfigured(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > CONFIG_BYTES_MAX:
        raise Misconfigured(f"{path}: is longer than {CONFIG_BYTES_MAX} bytes")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise Misconfigured(f"{path}: is not UTF-8 at byte {error.start}") from error
    return load_text(text, folder, str(path))


def load_text(text: str, folder: Path, source: str = CONFIG_NAME) -> Config:
    """The config in *text*, whose relative paths are below *folder*. Raises `Misconfigured` as `load` does."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"{source}: is not TOML: {error}") from error
    try:
        config = Config.model_validate(tables)
    except ValidationError as error:
        raise _misconfigured(source, [_problem(dict(each)) for each in error.errors()]) from error
    problems = [*config.topology(folder).problems(), *_odd(config)]
    if problems:
        raise _misconfigured(source, problems)
    return config


def default_text(name: str = "entrepot", mode: str = "aes-256-gcm") -> str:
    """The config that `init` writes for a site called *name*, every line explained."""
    text = resources.files(__package__).joinpath("default.toml").read_text()
    return text.replace('name = "entrepot"', f'name = "{name}"', 1).replace(
        'mode = "aes-256-gcm"', f'mode = "{mode}"', 1
    )


def _odd(config: Config) -> list[Problem]:
    """Settings that are sound alone but not together."""
    server = config.server
    if bool(server.tls_certificate) != bool(server.tls_key):
        absent = "tls_key" if server.tls_certificate else "tls_certificate"
        return [Problem(f"server.{absent}", "is missing: TLS needs both the certificate and its key")]
    return []


def _problem(found: dict[str, Any]) -> Problem:
    where = ".".join(str(each) for each in found["loc"] if each != "[key]")
    reason = _PLAIN.get(found["type"])
    if reason is None:
        reason = str(found["msg"]).removeprefix("Value error, ")
        reason = reason[:1].lower() + reason[1:]
    if "input" in found and found["type"] not in {"missing", "extra_forbidden"}:
        reason += f", not {_shown(found['input'])}"
    return Problem(where, reason)


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _misconfigured(source: str, problems: list[Problem]) -> Misconfigured:
    return Misconfigured("\n".join(f"{source}: {where}: {reason}" for where, reason in problems))
