"""Commands on ring keys, which seal blocks. Pure: keys come here wrapped under a master key.

A wrapped ring key is bound to its id, so the id is drawn first. Drawing writes nothing: a committer that restarts may
draw the same id again, and the second `AddRingKey` of it is refused and draws anew.
"""

from __future__ import annotations

from gateway.errors import InvalidArgument, NameExists
from gateway.journal.commands import Command, CommandTable, Tx, command
from gateway.journal.records.site import RingKeyMade, RingKeyRewrapped
from gateway.journal.tables import RING_KEY, TENANT


@command(tag=30)
class DrawRingKeyId(Command[int]):
    """Answers an id for `AddRingKey`."""


@command(tag=31)
class AddRingKey(Command[int]):
    """What *tenant* writes from now on is sealed with this key. Raises `NameExists` if the id is taken.

    *instead_of* is the id of the ring key that the tenant had when this was asked, so that two who renew at once do
    not both; if it is another one by now, nothing is changed. Answers the id of the tenant's ring key."""

    id: int
    tenant: str
    instead_of: int
    wrapped: bytes
    master: str


@command(tag=32)
class RewrapRingKeys(Command[int]):
    """The same ring keys under another master key: items of (id, wrapped as it was read, wrapped, master key).

    One that changed meanwhile is left alone. Answers how many were changed."""

    items: tuple[tuple[int, bytes, bytes, str], ...]


def draw_ring_key_id(asked: DrawRingKeyId, tx: Tx) -> int:
    return tx.new_id()


def add_ring_key(asked: AddRingKey, tx: Tx) -> int:
    if not 0 < asked.id < tx.next_id:
        raise InvalidArgument(f"nobody drew the id {asked.id:016x}")
    tx.prefetch([(TENANT, (asked.tenant,)), (RING_KEY, (asked.id,))])
    tenant = tx.get(TENANT, (asked.tenant,))
    if tenant is None:
        raise InvalidArgument(f"there is no tenant {asked.tenant}")
    if tenant.ring_key != asked.instead_of:
        return tenant.ring_key
    if tx.get(RING_KEY, (asked.id,)) is not None:
        raise NameExists(f"ring key {asked.id:016x}")
    tx.emit(RingKeyMade(asked.id, asked.tenant, asked.wrapped, asked.master, tx.at_ns))
    return asked.id


def rewrap_ring_keys(asked: RewrapRingKeys, tx: Tx) -> int:
    tx.prefetch([(RING_KEY, (ring_key,)) for ring_key, *_ in asked.items])
    changed = 0
    for ring_key, before, wrapped, master in asked.items:
        found = tx.get(RING_KEY, (ring_key,))
        if found is not None and found.wrapped == before:
            tx.emit(RingKeyRewrapped(ring_key, wrapped, master))
            changed += 1
    return changed


COMMANDS: CommandTable = {
    DrawRingKeyId: draw_ring_key_id,
    AddRingKey: add_ring_key,
    RewrapRingKeys: rewrap_ring_keys,
}
"""The commands of this module and the functions that run them, for the committer."""
