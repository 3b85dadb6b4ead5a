"""From `entrepot.toml` to a `Config`. All that is wrong is said at once: file, key path, reason; no secret is shown."""

from __future__ import annotations

import os.path
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from backends.named_files import read_named_file
from gateway.config.complaints import spelt
from gateway.config.models import Config
from gateway.config.places import LocalSection
from gateway.errors import Misconfigured
from gateway.topology import Problem, problems

CONFIG_NAME = "entrepot.toml"
CONFIG_BYTES_MAX = 1 << 20


def load(folder: Path) -> Config:
    """The config of the site in *folder*. Raises `Misconfigured`, whose one argument lists every problem."""
    return load_text(read(folder / CONFIG_NAME), folder, str(folder / CONFIG_NAME))


def read(path: Path) -> str:
    """A config file's text. Raises `Misconfigured`."""
    try:
        raw = read_named_file(path, CONFIG_BYTES_MAX)
    except OSError as error:
        raise Misconfigured(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return raw.decode("utf-8-sig")  # some editors put a mark in front
    except UnicodeDecodeError as error:
        raise Misconfigured(f"{path}: is not UTF-8 at byte {error.start}") from error


def load_text(text: str, folder: Path, source: str = CONFIG_NAME) -> Config:
    """The config in *text*, whose relative paths are below *folder*. Raises `Misconfigured` as `load` does."""
    tables = tables_of(text, source)
    try:
        config = Config.model_validate(tables)
    except ValidationError as error:
        found = [spelt(dict(each)) for each in error.errors(include_url=False)]
        raise _misconfigured(source, found) from None  # its own text would show what was written, secrets too
    folder = folder.absolute()  # so that folders can be compared
    wrong = [*problems(config.topology(folder), config.joined()), *_odd(config), *_in_the_way(config, folder)]
    if wrong:
        raise _misconfigured(source, wrong)
    return config


def tables_of(text: str, source: str = CONFIG_NAME) -> dict[str, Any]:
    """What stands in *text*, unchecked. Raises `Misconfigured` where it is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"{source}: is not TOML: {error}") from error
    except RecursionError:
        raise Misconfigured(f"{source}: is not a config: its tables and lists are nested too deeply") from None
    except ValueError as error:  # of numbers, which the parser hands on
        raise Misconfigured(f"{source}: a number in it cannot be read: {str(error).partition(';')[0]}") from None


def default_text(name: str = "entrepot", mode: str = "aes-256-gcm") -> str:
    """The config that `init` writes for a site called *name*, every line explained."""
    text = resources.files(__package__).joinpath("default.toml").read_text()
    return text.replace('name = "entrepot"', f'name = "{name}"', 1).replace(
        'mode = "aes-256-gcm"', f'mode = "{mode}"', 1
    )


def _odd(config: Config) -> list[Problem]:
    """Settings that are sound alone but not together."""
    server, found = config.server, []
    if bool(server.tls_certificate) != bool(server.tls_key):
        absent = "tls_key" if server.tls_certificate else "tls_certificate"
        found.append(Problem(f"server.{absent}", "is missing: TLS needs both the certificate and its key"))
    if server.listen == config.metrics.listen and server.listen.port:
        found.append(Problem("metrics.listen", "is server.listen too: S3 and metrics need a port each"))
    return found


def _in_the_way(config: Config, folder: Path) -> Iterator[Problem]:
    """Local backends whose folder is one where the site keeps other things."""
    own = {
        "the site's own folder": folder,
        "the journal's folder": folder / config.journal.path,
        "the folder where the site's processes meet": folder / "run",
    }
    for name, section in config.backends.items():
        if isinstance(section, LocalSection):
            path = os.path.normpath(folder / section.path)
            for what, other in own.items():
                shared = os.path.commonpath([path, os.path.normpath(other)])
                # most backends lie inside the site's own folder
                if shared == path or (other != folder and shared == os.path.normpath(other)):
                    yield Problem(f"backends.{name}.path", f"lies in the way of {what}: a backend needs one for itself")
                    break


def _misconfigured(source: str, problems: list[Problem]) -> Misconfigured:
    return Misconfigured("\n".join(f"{source}: {where}: {reason}" for where, reason in problems))
