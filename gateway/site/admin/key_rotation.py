"""Rotate the master key, renew ring keys, list ring keys.

A rotation wraps ring keys and users' secrets under a new master key, and rewrites no block. It may be killed at any
point: the new master key is durable before anything is wrapped under it, and the old one stays in the file. The next
call finishes a rotation that was interrupted, before a new one can begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from gateway import failpoints
from gateway.crypto.ring import new_ring_key, open_secret, seal_secret, unwrap_ring_key, wrap_ring_key
from gateway.crypto.ring_key_commands import AddRingKey, DrawRingKeyId, RewrapRingKeys
from gateway.errors import Misconfigured, NameExists
from gateway.identity.users import ResealAccessKeys
from gateway.site.admin.users import TENANT
from gateway.site.storage.keyring import MODE_WORDS, MODES

if TYPE_CHECKING:
    from gateway.site.site import Site
    from gateway.site.site_view import SiteView

BATCH_KEYS = 200
"""Keys that one command replaces."""

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with the number of keys that are done, and the number of all keys."""


class RotationResult(NamedTuple):
    master: str
    """The id of the master key under which everything is wrapped now."""
    ring_keys: int
    secrets: int
    finished_earlier: bool
    """True if an interrupted rotation was finished, and no new master key was made."""


class RingKeyInfo(NamedTuple):
    id: str
    tenant: str
    mode: str
    master: str
    made_ns: int
    active: bool
    """Whether it seals the blocks that its tenant writes now."""
    blocks: int


async def rotate_master_key(site: Site, progress: Progress = lambda done, of: None) -> RotationResult:
    """Wrap all ring keys and secrets under a new master key. If a rotation was interrupted, finish that one instead."""
    site.require_writable()
    unfinished = bool(_count_under_old_master(site, "ring_key")) or bool(_count_under_old_master(site, "access_key"))
    if not unfinished:
        site.keyring.add_master()
    failpoints.reach("rotate-added")
    total = _count_under_old_master(site, "ring_key") + _count_under_old_master(site, "access_key")
    done, ring_keys, secrets = 0, 0, 0
    for batch in _batches(_rewrap_ring_keys(site)):
        ring_keys += await site.journal.send(RewrapRingKeys(tuple(batch)))
        progress(done := done + len(batch), total)
    failpoints.reach("rotate-half")
    for resealed in _batches(_reseal_secrets(site)):
        secrets += await site.journal.send(ResealAccessKeys(tuple(resealed)))
        progress(done := done + len(resealed), total)
    return RotationResult(site.keyring.masters.current.id, ring_keys, secrets, unfinished)


async def renew_ring_key(site: Site, tenant: str = TENANT) -> int:
    """Make a ring key in the config's sealing mode, for all blocks that *tenant* writes from now on. Returns its id."""
    rows = site.store.query("SELECT ring_key FROM tenant WHERE name = ?", (tenant,))
    if not rows:
        raise Misconfigured(f"the site has no tenant {tenant}")
    master = site.keyring.masters.current
    while True:
        ring_key_id = await site.journal.send(DrawRingKeyId())
        wrapped = wrap_ring_key(master, new_ring_key(ring_key_id, MODES[site.config.sealing.mode]), tenant)
        try:
            return int(await site.journal.send(AddRingKey(ring_key_id, tenant, rows[0][0], wrapped, master.id)))
        except NameExists:
            continue  # the committer restarted after it drew the id, and has used the id since


async def renew_ring_key_if_mode_changed(site: Site, tenant: str = TENANT) -> bool:
    """Renew the ring key of *tenant* if the config has another sealing mode: the mode of a ring key never changes.
    Returns whether it was renewed."""
    (row,) = site.store.query("SELECT id FROM tenant WHERE name = ?", (tenant,))
    if site.keyring.active(row[0]).mode == MODES[site.config.sealing.mode]:
        return False
    await renew_ring_key(site, tenant)
    return True


def list_ring_keys(site: SiteView) -> list[RingKeyInfo]:
    """Return all ring keys, the oldest first."""
    rows = site.store.query(
        "SELECT r.id, t.name, r.master, r.made_ns, t.ring_key = r.id FROM ring_key r JOIN tenant t ON t.id = r.tenant"
        " ORDER BY r.made_ns, r.id"
    )
    blocks = dict(site.store.query("SELECT ring_key, count(*) FROM block GROUP BY ring_key"))
    return [
        RingKeyInfo(
            f"{ring_key:016x}",
            tenant,
            MODE_WORDS[site.keyring.ring_key(ring_key).mode],
            master,
            made_ns,
            bool(active),
            blocks.get(ring_key, 0),
        )
        for ring_key, tenant, master, made_ns, active in rows
    ]


def _count_under_old_master(site: Site, table: str) -> int:
    """Return how many keys in *table* are wrapped under a master key other than the current one."""
    current = site.keyring.masters.current.id
    (row,) = site.store.query(f"SELECT count(*) FROM {table} WHERE master <> ?", (current,))
    return int(row[0])


def _rewrap_ring_keys(site: Site) -> Iterator[tuple[int, bytes, bytes, str]]:
    current = site.keyring.masters.current
    rows = site.store.query(
        "SELECT r.id, t.name, r.wrapped, r.master FROM ring_key r JOIN tenant t ON t.id = r.tenant WHERE r.master <> ?",
        (current.id,),
    )
    for ring_key, tenant, wrapped, master in rows:
        opened = unwrap_ring_key(site.keyring.master(master), ring_key, tenant, wrapped)
        yield ring_key, wrapped, wrap_ring_key(current, opened, tenant), current.id


def _reseal_secrets(site: Site) -> Iterator[tuple[str, bytes, bytes, str]]:
    current = site.keyring.masters.current
    rows = site.store.query("SELECT access_key, secret, master FROM access_key WHERE master <> ?", (current.id,))
    for access_key, secret, master in rows:
        opened = open_secret(site.keyring.master(master), access_key, secret)
        yield access_key, secret, seal_secret(current, access_key, opened), current.id


def _batches(items: Iterator[T]) -> Iterator[list[T]]:
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) == BATCH_KEYS:
            yield batch
            batch = []
    if batch:
        yield batch
