"""What an operator does about the keys that seal: rotate the master key, renew ring keys, look at them.

Rotating wraps ring keys and users' secrets anew and touches no block. It can be killed anywhere: the new master key is
durable before anything is wrapped under it, the old one stays in the file, and rotating again finishes what was begun
before it begins anew.
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

BATCH_KEYS = 200
"""Keys that one command wraps anew."""

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with how many are done and how many there are."""


class RotationResult(NamedTuple):
    master: str
    """The id of the master key that wraps everything now."""
    ring_keys: int
    secrets: int
    finished_earlier: bool
    """An earlier rotation was finished, and no new master key was made."""


class RingKeyInfo(NamedTuple):
    id: str
    tenant: str
    mode: str
    master: str
    made_ns: int
    active: bool
    """It seals what its tenant writes now."""
    blocks: int


async def rotate_master_key(site: Site, progress: Progress = lambda done, of: None) -> RotationResult:
    """Wrap all ring keys and secrets under a new master key; or, if a rotation was cut short, finish that one."""
    unfinished = bool(_elsewhere(site, "ring_key")) or bool(_elsewhere(site, "access_key"))
    if not unfinished:
        site.keyring.add_master()
    failpoints.reach("rotate-added")
    total = _elsewhere(site, "ring_key") + _elsewhere(site, "access_key")
    done, ring_keys, secrets = 0, 0, 0
    for batch in _batches(_rewrapped(site)):
        ring_keys += await site.journal.send(RewrapRingKeys(tuple(batch)))
        progress(done := done + len(batch), total)
    failpoints.reach("rotate-half")
    for resealed in _batches(_resealed(site)):
        secrets += await site.journal.send(ResealAccessKeys(tuple(resealed)))
        progress(done := done + len(resealed), total)
    return RotationResult(site.keyring.masters.current.id, ring_keys, secrets, unfinished)


async def renew_ring_key(site: Site, tenant: str = TENANT) -> int:
    """A new ring key for what *tenant* writes from now on, of the config's mode. Answers its id."""
    rows = site.store.query("SELECT ring_key FROM tenant WHERE name = ?", (tenant,))
    if not rows:
        raise Misconfigured(f"the site has no tenant {tenant}")
    master = site.keyring.masters.current
    while True:
        drawn = await site.journal.send(DrawRingKeyId())
        wrapped = wrap_ring_key(master, new_ring_key(drawn, MODES[site.config.sealing.mode]), tenant)
        try:
            return int(await site.journal.send(AddRingKey(drawn, tenant, rows[0][0], wrapped, master.id)))
        except NameExists:
            continue  # the id was drawn before a restart of the committer, and used


async def renew_ring_key_if_mode_changed(site: Site, tenant: str = TENANT) -> bool:
    """Ring keys have a mode for good, so another mode in the config takes a new one."""
    (row,) = site.store.query("SELECT id FROM tenant WHERE name = ?", (tenant,))
    if site.keyring.active(row[0]).mode == MODES[site.config.sealing.mode]:
        return False
    await renew_ring_key(site, tenant)
    return True


def list_ring_keys(site: Site) -> list[RingKeyInfo]:
    """All ring keys, oldest first."""
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


def _elsewhere(site: Site, table: str) -> int:
    """How many keys of a table are wrapped under a master key that is not the current one."""
    current = site.keyring.masters.current.id
    (row,) = site.store.query(f"SELECT count(*) FROM {table} WHERE master <> ?", (current,))
    return int(row[0])


def _rewrapped(site: Site) -> Iterator[tuple[int, bytes, bytes, str]]:
    current = site.keyring.masters.current
    rows = site.store.query(
        "SELECT r.id, t.name, r.wrapped, r.master FROM ring_key r JOIN tenant t ON t.id = r.tenant WHERE r.master <> ?",
        (current.id,),
    )
    for ring_key, tenant, wrapped, master in rows:
        opened = unwrap_ring_key(site.keyring.master(master), ring_key, tenant, wrapped)
        yield ring_key, wrapped, wrap_ring_key(current, opened, tenant), current.id


def _resealed(site: Site) -> Iterator[tuple[str, bytes, bytes, str]]:
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
