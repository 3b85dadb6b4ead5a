"""Create a site: the work of `entrepot init`, and the frame in which `entrepot restore` creates one.

**The folder is marked.** `UNFINISHED` is the first file written and the last one deleted, so an incomplete site is
never served. Both commands refuse a folder that contains anything else, and leave it untouched.

**A crash at any point is repaired by running the command again.** The mark says which command that is. Each step first
checks whether its result exists. The root user's secret key is in its file before the journal knows it, so the key that
the journal knows can always be read.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gateway import failpoints
from gateway.config import CONFIG_NAME, default_text, load, load_text
from gateway.crypto import master
from gateway.crypto.ring import new_ring_key, seal_secret, wrap_ring_key
from gateway.crypto.ring_key_commands import AddRingKey, DrawRingKeyId
from gateway.errors import Misconfigured, NameExists
from gateway.identity.names import check_access_key, check_secret, new_access_key, new_secret
from gateway.identity.users import AddTenant, AddUser
from gateway.journal.client import Journal
from gateway.journal.columns import unpack
from gateway.journal.paths import JournalPaths, make_folder, sync_folder
from gateway.journal.server.reserve import RESERVE_BYTES
from gateway.journal.session_commands import FoundSite
from gateway.journal.sqlite.read_store import ReadStore
from gateway.site.admin.users import TENANT
from gateway.site.committer_launcher import open_journal
from gateway.site.paths import ROOT_SECRET, UNFINISHED, journal_folder, master_key
from gateway.site.storage.atomic_files import temporary_name, write_file
from gateway.site.storage.keyring import MODES
from gateway.site.storage.marker_guard import site_row
from gateway.site.storage.registration import register_backends
from gateway.timing import timing_from_environment
from gateway.topology import Topology

_log = logging.getLogger(__name__)

ROOT = "root"
"""The name of the root user."""
FREE_BYTES_MIN = 4 * RESERVE_BYTES
"""Free space that a new site needs. With less, its journal would accept nothing but deletions from the beginning."""
_ALLOWED_FILES = {UNFINISHED, temporary_name(UNFINISHED), "lost+found"}
"""Files that the folder of a new site may contain."""


class CreatedSite(NamedTuple):
    folder: Path
    site: str
    """The site's id."""
    access_key: str
    """The root user's access key."""
    secret_file: Path
    """The file that contains the root user's secret key."""


async def create_site(
    folder: Path,
    *,
    name: str = "entrepot",
    mode: str = "aes-256-gcm",
    access_key: str | None = None,
    secret: str | None = None,
) -> CreatedSite:
    """Create a site in *folder*, which is absent, empty, or one in which `entrepot init` was interrupted.

    *mode* says how blocks are sealed (`MODES`). *access_key* and *secret* are the root user's; both or neither are
    None, and then they are drawn at random. Raises `Misconfigured`, `InvalidArgument`."""
    if (access_key is None) != (secret is None):
        raise Misconfigured("the root user's access key and secret key go together: give both or neither")
    if access_key is not None and secret is not None:
        check_access_key(access_key), check_secret(secret)
    load_text(default_text(name, mode), folder)
    with unfinished_site(folder, "init"):
        return await _create(folder, name, mode, access_key, secret)


async def _create(folder: Path, name: str, mode: str, access_key: str | None, secret: str | None) -> CreatedSite:
    failpoints.reach("init-marked")
    _write_config(folder, name, mode)
    failpoints.reach("init-configured")
    config = load(folder)
    keys = _load_or_create_master_keys(master_key(folder, config))
    failpoints.reach("init-keyed")
    make_folder(journal_folder(folder, config))
    journal, committer = await open_journal(folder, journal_folder(folder, config), "cli", timing_from_environment())
    store = ReadStore(JournalPaths(journal_folder(folder, config)).database)
    try:
        await journal.send(FoundSite(secrets.token_hex(16), config.site.name))
        await journal.send(AddTenant(TENANT))
        failpoints.reach("init-founded")
        await _register_all_backends(config.topology(folder), journal, store)
        await _add_first_ring_key(journal, store, keys.current, MODES[config.sealing.mode])
        failpoints.reach("init-ringed")
        root = await _add_root_user(folder, journal, store, keys.current, access_key, secret)
        failpoints.reach("init-rooted")
        site, _ = site_row(store)
    finally:
        await journal.close()
        await committer.release()
        store.close()
    return CreatedSite(folder, site, root, folder / ROOT_SECRET)


@contextmanager
def unfinished_site(folder: Path, command: str, source: str = "") -> Iterator[None]:
    """Keep *folder* marked as an unfinished site while the `with` block creates one, and keep other processes out. If
    the block raises an error, the mark stays.

    *command* is `init` or `restore`, and *source* identifies what the site is created from, if anything. In a folder
    that is marked already, both must be the same as before. Raises `Misconfigured` if they are not, or if the folder
    contains anything else; nothing is changed then."""
    try:
        make_folder(folder)
    except OSError as error:
        raise Misconfigured(f"cannot create a site in {folder}: {error.strerror}") from error
    with _locked(folder):
        _mark_unfinished(folder, command, source)
        yield
        mark_finished(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from creating a site in *folder*. On a file system without locks, only log a warning."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Misconfigured(f"another process is creating a site in {folder}") from None
    except OSError:
        _log.warning("the file system of %s has no locks: run only one command at a time that creates a site", folder)
    try:
        yield
    finally:
        os.close(descriptor)


def _mark_unfinished(folder: Path, command: str, source: str) -> None:
    """Mark *folder*, or check that the mark in it names the same *command* and *source*. Raises `Misconfigured`."""
    try:
        names = {each.name for each in folder.iterdir()}
    except OSError as error:
        raise Misconfigured(f"cannot create a site in {folder}: {error.strerror}") from error
    mark = folder / UNFINISHED
    if not mark.exists():
        if CONFIG_NAME in names:
            raise Misconfigured(f"{folder} is a site already")
        if names - _ALLOWED_FILES:
            raise Misconfigured(f"{folder} is neither empty nor a site; nothing was changed")
        _check_free_space(folder)
        folder.chmod(0o700)
        write_file(mark, f"{command}\n{source}\n" if source else f"{command}\n")
        return
    marked_command, *marked_source = mark.read_text().splitlines() or [""]
    if marked_command != command:
        raise Misconfigured(f"{folder} is not finished: `entrepot {marked_command}` was interrupted there")
    if source and marked_source != [source]:
        raise Misconfigured(
            f"{folder} is not finished: `entrepot {command}` of something else was interrupted there: "
            "run that one again, or choose another folder"
        )


def _check_free_space(folder: Path) -> None:
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < FREE_BYTES_MIN:
        raise Misconfigured(
            f"cannot create a site in {folder}: its disk has {free >> 20} MiB free, and a site needs at least "
            f"{FREE_BYTES_MIN >> 20} MiB"
        )


def mark_finished(folder: Path) -> None:
    """Make everything in *folder* durable, then delete the mark. From here on the folder is a site."""
    sync_folder(folder)
    (folder / UNFINISHED).unlink()
    sync_folder(folder)


async def _register_all_backends(topology: Topology, journal: Journal, store: ReadStore) -> None:
    """Register and claim the backends. Raises `Misconfigured` if one of them cannot be claimed."""
    for why in (await register_backends(topology, journal, store)).values():
        raise Misconfigured(why)


def _write_config(folder: Path, name: str, mode: str) -> None:
    path = folder / CONFIG_NAME
    if not path.exists():
        write_file(path, default_text(name, mode))


def _load_or_create_master_keys(path: Path) -> master.MasterKeys:
    return master.load(path) if path.exists() else master.create(path)


async def _add_first_ring_key(journal: Journal, store: ReadStore, key: master.MasterKey, mode: int) -> None:
    """Add a ring key to the tenant, unless it has one. *key* wraps it."""
    if store.query("SELECT ring_key FROM tenant WHERE name = ?", (TENANT,)) != [(0,)]:
        return
    while True:
        number = await journal.send(DrawRingKeyId())
        wrapped = wrap_ring_key(key, new_ring_key(number, mode), TENANT)
        try:
            await journal.send(AddRingKey(number, TENANT, 0, wrapped, key.id))
        except NameExists:
            continue
        return


async def _add_root_user(
    folder: Path,
    journal: Journal,
    store: ReadStore,
    key: master.MasterKey,
    access_key: str | None,
    secret: str | None,
) -> str:
    """Add the root user, unless it exists. Return its access key. *key* seals its secret key."""
    rows = store.query("SELECT access_keys FROM user WHERE name = ?", (ROOT,))
    if rows:
        return str(unpack(rows[0][0])[0])
    access_key, secret = access_key or new_access_key(), secret or new_secret()
    write_file(folder / ROOT_SECRET, f"{secret}\n")
    failpoints.reach("init-secret")
    await journal.send(AddUser(ROOT, TENANT, True, access_key, seal_secret(key, access_key, secret), key.id))
    return access_key
