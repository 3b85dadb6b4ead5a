"""`init`: makes a site. It can be killed anywhere and run again: every step first sees what is there.

The folder bears a mark from the first step to the last, so that a site that is not whole is never served, and a folder
that holds something else is never touched.
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
ROOM_BYTES = 4 * RESERVE_BYTES
"""On a disk with less, the journal would take nothing but deletions from its first day."""
_FOREIGN_BUT_FINE = {UNFINISHED, temporary_name(UNFINISHED), "lost+found"}


class Founded(NamedTuple):
    folder: Path
    site: str
    access_key: str
    secret_file: Path


async def found(
    folder: Path,
    *,
    name: str = "entrepot",
    mode: str = "aes-256-gcm",
    access_key: str | None = None,
    secret: str | None = None,
) -> Founded:
    """Make a site in *folder*, which is empty, absent, or where this was cut short before.

    *access_key* and *secret* are the root user's; drawn at random where they are None. Raises `Misconfigured`,
    `InvalidArgument`."""
    if (access_key is None) != (secret is None):
        raise Misconfigured("the root user's access key and secret key go together: give both or neither")
    if access_key is not None and secret is not None:
        check_access_key(access_key), check_secret(secret)
    load_text(default_text(name, mode), folder)
    with unfinished(folder, "init"):
        return await _found(folder, name, mode, access_key, secret)


async def _found(folder: Path, name: str, mode: str, access_key: str | None, secret: str | None) -> Founded:
    failpoints.reach("init-marked")
    _write_config(folder, name, mode)
    failpoints.reach("init-configured")
    config = load(folder)
    keys = _master_keys(master_key(folder, config))
    failpoints.reach("init-keyed")
    make_folder(journal_folder(folder, config))
    journal, committer = await open_journal(folder, journal_folder(folder, config), "cli", timing_from_environment())
    store = ReadStore(JournalPaths(journal_folder(folder, config)).database)
    try:
        await journal.send(FoundSite(secrets.token_hex(16), config.site.name))
        await journal.send(AddTenant(TENANT))
        failpoints.reach("init-founded")
        await _introduce(config.topology(folder), journal, store)
        await _first_ring_key(journal, store, keys.current, MODES[config.sealing.mode])
        failpoints.reach("init-ringed")
        root = await _root_user(folder, journal, store, keys.current, access_key, secret)
        failpoints.reach("init-rooted")
        site, _ = site_row(store)
    finally:
        await journal.close()
        await committer.release()
        store.close()
    return Founded(folder, site, root, folder / ROOT_SECRET)


@contextmanager
def unfinished(folder: Path, command: str, of: str = "") -> Iterator[None]:
    """Make *folder* a site inside the block, alone: it is marked as unfinished until the block ends without an error.

    *command* (`init` or `restore`) may be run again where it was cut short, if *of*, which names what the site is made
    from, is the same. Raises `Misconfigured`, with nothing touched, for a folder that holds anything else."""
    try:
        make_folder(folder)
    except OSError as error:
        raise Misconfigured(f"{folder} cannot be made a site: {error.strerror}") from error
    with _alone_in(folder):
        _begin(folder, command, of)
        yield
        finish(folder)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes that would make a site in *folder* out. A file system without locks keeps out nobody."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Misconfigured(f"another process is making a site in {folder}") from None
    except OSError:
        _log.warning("the file system of %s has no locks: run no second command that makes a site there", folder)
    try:
        yield
    finally:
        os.close(descriptor)


def _begin(folder: Path, command: str, of: str) -> None:
    """See that *folder* is empty, or that *command* was cut short in it while it made a site from *of*; and mark it."""
    try:
        inside = {each.name for each in folder.iterdir()}
    except OSError as error:
        raise Misconfigured(f"{folder} cannot be made a site: {error.strerror}") from error
    marked = folder / UNFINISHED
    if not marked.exists():
        if CONFIG_NAME in inside:
            raise Misconfigured(f"{folder} is a site already")
        if inside - _FOREIGN_BUT_FINE:
            raise Misconfigured(f"{folder} is not empty and not a site; nothing was touched")
        _see_room(folder)
        folder.chmod(0o700)
        write_file(marked, f"{command}\n{of}\n" if of else f"{command}\n")
        return
    begun, *of_what = marked.read_text().splitlines() or [""]
    if begun != command:
        raise Misconfigured(f"{folder} is not finished: `entrepot {begun}` was cut short in it")
    if of and of_what != [of]:
        raise Misconfigured(
            f"{folder} is not finished: `entrepot {command}` of something else was cut short in it: "
            "run that one again, or choose another folder"
        )


def _see_room(folder: Path) -> None:
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < ROOM_BYTES:
        raise Misconfigured(
            f"{folder} cannot be made a site: its disk has {free >> 20} MiB free, and a site asks for "
            f"{ROOM_BYTES >> 20} MiB at least"
        )


def finish(folder: Path) -> None:
    """The last step: the folder is a site from here on."""
    sync_folder(folder)
    (folder / UNFINISHED).unlink()
    sync_folder(folder)


async def _introduce(topology: Topology, journal: Journal, store: ReadStore) -> None:
    for why in (await register_backends(topology, journal, store)).values():
        raise Misconfigured(why)


def _write_config(folder: Path, name: str, mode: str) -> None:
    path = folder / CONFIG_NAME
    if not path.exists():
        write_file(path, default_text(name, mode))


def _master_keys(path: Path) -> master.MasterKeys:
    return master.load(path) if path.exists() else master.create(path)


async def _first_ring_key(journal: Journal, store: ReadStore, key: master.MasterKey, mode: int) -> None:
    if store.query("SELECT ring_key FROM tenant WHERE name = ?", (TENANT,)) != [(0,)]:
        return
    while True:
        drawn = await journal.send(DrawRingKeyId())
        wrapped = wrap_ring_key(key, new_ring_key(drawn, mode), TENANT)
        try:
            await journal.send(AddRingKey(drawn, TENANT, 0, wrapped, key.id))
        except NameExists:
            continue
        return


async def _root_user(
    folder: Path,
    journal: Journal,
    store: ReadStore,
    key: master.MasterKey,
    access_key: str | None,
    secret: str | None,
) -> str:
    """Make the root user, unless it is there. Its secret is in its file before it is in the journal. Answers its
    access key."""
    found = store.query("SELECT access_keys FROM user WHERE name = ?", (ROOT,))
    if found:
        return str(unpack(found[0][0])[0])
    chosen, chosen_secret = access_key or new_access_key(), secret or new_secret()
    write_file(folder / ROOT_SECRET, f"{chosen_secret}\n")
    failpoints.reach("init-secret")
    await journal.send(AddUser(ROOT, TENANT, True, chosen, seal_secret(key, chosen, chosen_secret), key.id))
    return chosen
