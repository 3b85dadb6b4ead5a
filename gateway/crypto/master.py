"""The master key file: a small text file that only its owner may read.

Each line is `entrepot-master-key-1 ID BASE64`. The key in the last line wraps new ring keys and secrets. The other keys
still unwrap what they wrapped, until `entrepot keys rotate` has wrapped it under the last one.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from pathlib import Path
from typing import NamedTuple

from backends.named_files import read_named_file
from gateway.errors import Misconfigured

WORD = "entrepot-master-key-1"
KEY_BYTES = 32


class MasterKey(NamedTuple):
    id: str
    key: bytes

    def __repr__(self) -> str:
        return f"MasterKey({self.id!r}, …)"


class MasterKeys:
    """The keys of a file. The last one is current."""

    def __init__(self, keys: list[MasterKey]) -> None:
        self._keys = {key.id: key for key in keys}
        self.current = keys[-1]

    def by_id(self, master_id: str) -> MasterKey:
        """Return the key of that id. Raises `Misconfigured` if the file does not have it."""
        key = self._keys.get(master_id)
        if key is None:
            raise Misconfigured(f"the master key file has no key {master_id}, under which something is wrapped")
        return key

    def __len__(self) -> int:
        return len(self._keys)


def create(path: Path) -> MasterKeys:
    """Create the file with one new key, durably and readable by its owner alone. Raises `FileExistsError`.

    A crash leaves the whole file or none: it is written under a temporary name and then linked."""
    temporary = _write_temporary(path, [_new()])
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink()
    _sync(path.parent)
    return load(path)


def add(path: Path) -> MasterKeys:
    """Append a new key, which is current from then on. The file is replaced atomically, so a crash loses no old key.

    The caller holds the site's lock: of two processes that add a key at once, one would lose its key."""
    temporary = _write_temporary(path, [*_read(path), _new()])
    temporary.replace(path)
    _sync(path.parent)
    return load(path)


def load(path: Path) -> MasterKeys:
    """Return the keys of the file. Raises `Misconfigured` if it is absent, malformed, or accessible to other users."""
    return MasterKeys(_read(path))


def parse(raw: bytes, path: Path) -> MasterKeys:
    """Return the keys in *raw*, the content of the file *path*. Raises `Misconfigured` if it is malformed."""
    try:
        text = raw.decode("ascii")
    except UnicodeDecodeError:
        raise Misconfigured(f"{path} is not a master key file: it has bytes that are not text") from None
    return MasterKeys(_parse_all(text, path))


def _new() -> MasterKey:
    return MasterKey(os.urandom(8).hex(), os.urandom(KEY_BYTES))


def _read(path: Path) -> list[MasterKey]:
    try:
        mode = path.stat().st_mode
        text = read_named_file(path).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"the master key file {path} cannot be read: {error}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Misconfigured(f"the master key file {path} can be read by other users: `chmod 600 {path}`")
    return _parse_all(text, path)


def _parse_all(text: str, path: Path) -> list[MasterKey]:
    keys = [_parse(path, number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not keys:
        raise Misconfigured(f"the master key file {path} holds no key")
    if len({key.id for key in keys}) < len(keys):
        raise Misconfigured(f"the master key file {path} has two keys of one id")
    return keys


def _parse(path: Path, number: int, line: str) -> MasterKey:
    words = line.split()
    if len(words) != 3 or words[0] != WORD:
        raise Misconfigured(f"line {number} of the master key file {path} is not `{WORD} ID BASE64`")
    try:
        key = base64.b64decode(words[2], validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise Misconfigured(f"line {number} of the master key file {path} does not hold {KEY_BYTES} bytes of base64")
    return MasterKey(words[1], key)


def _write_temporary(path: Path, keys: list[MasterKey]) -> Path:
    """Write *keys* to a new file in the directory of *path*, durably and readable by its owner alone. Returns its
    path."""
    temporary = path.with_name(f"{path.name}.{os.urandom(4).hex()}.new")
    text = "".join(f"{WORD} {key.id} {base64.b64encode(key.key).decode()}\n" for key in keys)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(handle)
    return temporary


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
