"""Load `entrepot.toml`. All problems are reported at once (file, key path, reason); no secret is shown."""

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
from gateway.config.error_messages import to_problem
from gateway.config.folders import Folder, resolve_folder
from gateway.config.models import Config
from gateway.config.topology_sections import LocalSection
from gateway.errors import Misconfigured
from gateway.topology import Problem, problems

CONFIG_NAME = "entrepot.toml"
CONFIG_BYTES_MAX = 1 << 20
KEY_PARTS_MAX = 16
"""Parts of a dotted key. Entrepot's keys have five at most; the time to parse a key grows with their square."""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')
_NO_KEY = re.compile(r"[^A-Za-z0-9_. \t-]")


def load(folder: Path) -> Config:
    """Return the config of the site in *folder*. Raises `Misconfigured`, whose argument lists every problem."""
    if not (folder / CONFIG_NAME).exists():
        missing = f"{folder / CONFIG_NAME}: cannot be read: {os.strerror(errno.ENOENT)}"
        raise Misconfigured(f"{missing}; there is no site in this folder (`entrepot init` creates one)")
    return load_text(read(folder / CONFIG_NAME), folder, str(folder / CONFIG_NAME))


def read(path: Path) -> str:
    """Return the text of a config file. Raises `Misconfigured`."""
    try:
        raw = read_named_file(path, CONFIG_BYTES_MAX)
    except OSError as error:
        raise Misconfigured(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return raw.decode("utf-8-sig")  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        raise Misconfigured(f"{path}: is not UTF-8 at byte {error.start}") from error


def load_text(text: str, folder: Path, source: str = CONFIG_NAME) -> Config:
    """Return the config in *text*, whose relative paths are relative to *folder*. Raises `Misconfigured` as `load`
    does."""
    tables = tables_of(text, source)
    try:
        config = Config.model_validate(tables)
    except ValidationError as error:
        wrong = [to_problem(dict(each)) for each in error.errors(include_url=False)]
        raise _misconfigured(source, wrong) from None  # pydantic's own message would show values, secrets too
    folder = folder.absolute()  # so that folders can be compared
    wrong = [*problems(config.topology(folder), config.joined()), *_inconsistent(config), *_overlapping(config, folder)]
    if wrong:
        raise _misconfigured(source, wrong)
    return config


def tables_of(text: str, source: str = CONFIG_NAME) -> dict[str, Any]:
    """Parse *text* without validating it. Raises `Misconfigured` if it is not TOML."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") >= KEY_PARTS_MAX and _dots_of_a_key(line) >= KEY_PARTS_MAX:
            raise Misconfigured(f"{source}: line {number}: a key has at most {KEY_PARTS_MAX} parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"{source}: is not TOML: {error}") from error
    except RecursionError:
        raise Misconfigured(f"{source}: is not a config: its tables and lists are nested too deeply") from None
    except ValueError as error:  # of a number: the parser does not wrap it
        raise Misconfigured(f"{source}: a number in it cannot be read: {str(error).partition(';')[0]}") from None


def _dots_of_a_key(line: str) -> int:
    """Return an upper bound of the dots in a key of *line*, in linear time."""
    bare = _STRING.sub("s", line).partition("#")[0]
    return max(piece.count(".") for piece in _NO_KEY.split(bare))


def default_text(name: str = "entrepot", mode: str = "aes-256-gcm") -> str:
    """Return the config that `init` writes for a site with this *name*. A comment explains each line."""
    text = resources.files(__package__).joinpath("default.toml").read_text()
    return text.replace('name = "entrepot"', f'name = "{name}"', 1).replace(
        'mode = "aes-256-gcm"', f'mode = "{mode}"', 1
    )


def _inconsistent(config: Config) -> list[Problem]:
    """Return problems of settings that are valid alone but not together."""
    server, found = config.server, []
    if bool(server.tls_certificate) != bool(server.tls_key):
        absent = "tls_key" if server.tls_certificate else "tls_certificate"
        found.append(Problem(f"server.{absent}", "is missing: TLS needs both the certificate and its key"))
    if server.listen == config.metrics.listen and server.listen.port:
        found.append(Problem("metrics.listen", "is the same as server.listen: S3 and metrics need different ports"))
    return found


def _overlapping(config: Config, folder: Path) -> Iterator[Problem]:
    """Yield a problem for each local backend whose folder overlaps with a folder of the site or of another backend, by
    its path or by the folder to which symbolic links and mounts lead."""
    own = {
        "the site's own folder": folder,
        "the journal's folder": folder / config.journal.path,
        "the run folder of the site's processes": folder / "run",
    }
    seen: dict[str, Folder] = {}
    for name, section in config.backends.items():
        if not isinstance(section, LocalSection):
            continue
        here = resolve_folder(folder / section.path)
        for what, other in own.items():
            # a backend may be inside the site's own folder
            if here.holds(there := resolve_folder(other)) or (other != folder and there.holds(here)):
                yield Problem(f"backends.{name}.path", f"overlaps with {what}: a backend needs a folder of its own")
                break
        for before, there in seen.items():
            # `gateway.topology` reports overlaps that the paths alone show
            if not here.shows_overlap(there) and (here.holds(there) or there.holds(here)):
                reason = f"leads to the folder of backends.{before}: two backends cannot share a folder"
                yield Problem(f"backends.{name}.path", reason)
        seen[name] = here


def _misconfigured(source: str, problems: list[Problem]) -> Misconfigured:
    return Misconfigured("\n".join(f"{source}: {where}: {reason}" for where, reason in problems))
