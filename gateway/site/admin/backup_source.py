"""A backup as `entrepot restore` reads it: checked, and with the config and the key of the site that it becomes."""

from __future__ import annotations

import hashlib
import json
import os.path
import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from gateway.config import CONFIG_NAME, load_text
from gateway.config.loading import read, tables_of
from gateway.crypto import master
from gateway.crypto.ring import open_secret, unwrap_ring_key
from gateway.errors import Corrupted, Misconfigured
from gateway.journal.history import backup as journal_backup
from gateway.journal.history.backup import Manifest
from gateway.journal.paths import make_folder
from gateway.journal.sqlite.read_store import ReadStore
from gateway.site.storage.atomic_files import write_file
from gateway.topology import Topology

_OWN_PATHS = (("journal", "path", "journal"), ("sealing", "master_key", "master.key"))
"""The settings (section and name) that name files of this site alone, and the path that replaces one outside."""


_REHEARSAL_SETTINGS: dict[str, dict[str, Any]] = {
    "server": {"listen": "127.0.0.1:0", "tls_certificate": "", "tls_key": ""},
    "metrics": {"listen": "127.0.0.1:0"},
}
"""Settings of a rehearsal: it is served beside the original, and only to this machine."""


class Backup(NamedTuple):
    """A complete backup."""

    manifest: Manifest
    database: Path
    config: str
    """The text of the config for the restored site."""
    moved: dict[str, str]
    """The settings of the backup's config that named a path outside the new folder, with that path."""
    topology: Topology


def read_backup(target: Path, folder: Path, *, rehearsal: bool = False) -> Backup:
    """Read the backup in *target*, which is to be restored in *folder*. *rehearsal*: with the settings of a rehearsal.
    Raises `Misconfigured`."""
    manifest = journal_backup.read_manifest(target)
    if not (target / CONFIG_NAME).exists():
        raise Misconfigured(f"{target} is not a complete backup: {CONFIG_NAME} is missing")
    text, moved = _rewrite_settings(read(target / CONFIG_NAME), folder, _REHEARSAL_SETTINGS if rehearsal else {})
    topology = load_text(text, folder).topology(folder)
    return Backup(manifest, target / journal_backup.DATABASE, text, moved, topology)


def _rewrite_settings(text: str, folder: Path, settings: dict[str, dict[str, Any]]) -> tuple[str, dict[str, str]]:
    """Return the config *text* for the site in *folder*, with its journal and master key inside that folder, and with
    *settings*, by section; and the settings that named a path outside, with that path. If anything is changed, comments
    are lost. Raises `Misconfigured`."""
    config, tables = load_text(text, folder), tables_of(text)
    moved: dict[str, str] = {}
    for section, setting, inside in _OWN_PATHS:
        path = getattr(getattr(config, section), setting)
        if not _is_inside(folder / path, folder):
            tables.setdefault(section, {})[setting] = inside
            moved[f"{section}.{setting}"] = path
    for section, values in settings.items():
        tables.setdefault(section, {}).update(values)
    if not moved and not settings:
        return text, moved
    text = tomli_w.dumps(tables)
    load_text(text, folder)
    return text, moved


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether *path* is below *folder* after all symbolic links are followed."""
    root = os.path.realpath(folder)
    return os.path.commonpath([root, os.path.realpath(path)]) == root and os.path.realpath(path) != root


def compute_identity(backup: Backup, *options: object) -> str:
    """Return a digest that differs between restores of different backups, or with other *options*. The backends that
    are left out are not part of it, since a second attempt may leave out more of them."""
    text = json.dumps([backup.manifest.to_dict(), backup.config, *options], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def check_names(anyway: Collection[str], without: Collection[str], topology: Topology) -> None:
    """Check the names of backends that an operator gave, of those to be claimed anyway and of those to be left out.
    Raises `Misconfigured`."""
    for name in (*anyway, *without):
        if name not in topology.backends:
            raise Misconfigured(f"the backup's config names no backend {name!r}")
    for name in anyway:
        if name in without:
            raise Misconfigured(f"backend {name!r} cannot be both claimed anyway and left out")


def check_key(key: bytes, key_file: Path, database: Path) -> None:
    """Check that the master key *key*, which was read from *key_file*, opens everything that the backup's *database*
    has wrapped. Raises `Misconfigured`, `Corrupted`."""
    keys = master.parse(key, key_file)
    store = ReadStore(database)
    try:
        for number, tenant, wrapped, master_id in store.query(
            "SELECT r.id, t.name, r.wrapped, r.master FROM ring_key r JOIN tenant t ON t.id = r.tenant"
        ):
            unwrap_ring_key(keys.by_id(master_id), number, tenant, wrapped)
        for access_key, sealed, master_id in store.query("SELECT access_key, secret, master FROM access_key"):
            open_secret(keys.by_id(master_id), access_key, sealed)
    except sqlite3.Error as error:
        raise Corrupted(f"{database} cannot be read: {error}") from error
    finally:
        store.close()


def install_key(key: bytes, key_file: Path, path: Path) -> None:
    """Write the master key to *path*, inside the new folder. Raises `Misconfigured` if another key is there."""
    if not path.exists():
        make_folder(path.parent)
        write_file(path, key)
    elif path.read_bytes() != key:
        raise Misconfigured(f"{path}, which the interrupted restore wrote, differs from {key_file}")
