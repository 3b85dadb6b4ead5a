"""From `entrepot.toml` to a `Config`. All that is wrong is said at once: file, key path, reason; no secret is shown."""

from __future__ import annotations

import errno
import os
import re
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from backends.named_files import read_named_file
from gateway.config.error_messages import spelt
from gateway.config.folders import Seen, look
from gateway.config.models import Config
from gateway.config.topology_sections import LocalSection
from gateway.errors import Misconfigured
from gateway.topology import Problem, problems

CONFIG_NAME = "entrepot.toml"
CONFIG_BYTES_MAX = 1 << 20
KEY_PARTS_MAX = 16
"""Of a key with dots in it. Ours have five at most, and the parser takes the square of that for each."""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')
_NO_KEY = re.compile(r"[^A-Za-z0-9_. \t-]")


def load(folder: Path) -> Config:
    """The config of the site in *folder*. Raises `Misconfigured`, whose one argument lists every problem."""
    if not (folder / CONFIG_NAME).exists():
        missing = f"{folder / CONFIG_NAME}: cannot be read: {os.strerror(errno.ENOENT)}"
        raise Misconfigured(f"{missing}; so there is no site in this folder, and `entrepot init` makes one")
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
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") >= KEY_PARTS_MAX and _dots_of_a_key(line) >= KEY_PARTS_MAX:
            raise Misconfigured(f"{source}: line {number}: a key has at most {KEY_PARTS_MAX} parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"{source}: is not TOML: {error}") from error
    except RecursionError:
        raise Misconfigured(f"{source}: is not a config: its tables and lists are nested too deeply") from None
    except ValueError as error:  # of numbers, which the parser hands on
        raise Misconfigured(f"{source}: a number in it cannot be read: {str(error).partition(';')[0]}") from None


def _dots_of_a_key(line: str) -> int:
    """The most dots that a key in *line* can have. In linear time."""
    bare = _STRING.sub("s", line).partition("#")[0]
    return max(piece.count(".") for piece in _NO_KEY.split(bare))


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
    """Local backends whose folder is one where the site keeps other things, or another backend does: by name, or once
    symbolic links and mounts are followed."""
    own = {
        "the site's own folder": folder,
        "the journal's folder": folder / config.journal.path,
        "the folder where the site's processes meet": folder / "run",
    }
    seen: dict[str, Seen] = {}
    for name, section in config.backends.items():
        if not isinstance(section, LocalSection):
            continue
        here = look(folder / section.path)
        for what, other in own.items():
            # most backends lie inside the site's own folder
            if here.holds(there := look(other)) or (other != folder and there.holds(here)):
                yield Problem(f"backends.{name}.path", f"lies in the way of {what}: a backend needs one for itself")
                break
        for before, there in seen.items():
            # what shows in the names alone is told by `gateway.topology`
            if not here.shows_overlap(there) and (here.holds(there) or there.holds(here)):
                reason = f"leads to a folder of backends.{before}: two backends cannot share a place"
                yield Problem(f"backends.{name}.path", reason)
        seen[name] = here


def _misconfigured(source: str, problems: list[Problem]) -> Misconfigured:
    return Misconfigured("\n".join(f"{source}: {where}: {reason}" for where, reason in problems))
