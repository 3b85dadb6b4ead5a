"""Commands on ring keys, which seal blocks. Pure: the keys come wrapped under a master key.

A wrapped ring key is bound to its id, so the sender asks for an id first. Drawing an id writes nothing. So a committer
that restarts may draw the same id again; the second `AddRingKey` with that id is refused, and its sender starts over.
"""

from __future__ import annotations

from gateway.errors import InvalidArgument, NameExists
from gateway.journal.commands import Command, CommandTable, Tx, command
from gateway.journal.records.site import RingKeyMade, RingKeyRewrapped
from gateway.journal.tables import RING_KEY, TENANT


@command(tag=30)
class DrawRingKeyId(Command[int]):
    """Return an id for `AddRingKey`."""


@command(tag=31)
class AddRingKey(Command[int]):
    """Seal what *tenant* writes from now on with this key. Returns the id of the tenant's ring key.

    *instead_of*: the id of the ring key that the tenant had when the sender read it. If it has another one by now,
    nothing is changed, so of two senders that renew the key at once only one succeeds. Raises `NameExists` if the id is
    taken."""

    id: int
    tenant: str
    instead_of: int
    wrapped: bytes
    master: str


@command(tag=32)
class RewrapRingKeys(Command[int]):
    """Replace the wrapping of ring keys: items of (id, wrapped key as it was read, newly wrapped key, master key's id).

    A ring key whose wrapping has changed meanwhile is left alone. Returns how many were changed."""

    items: tuple[tuple[int, bytes, bytes, str], ...]


def draw_ring_key_id(request: DrawRingKeyId, tx: Tx) -> int:
    return tx.new_id()


def add_ring_key(request: AddRingKey, tx: Tx) -> int:
    if not 0 < request.id < tx.next_id:
        raise InvalidArgument(f"the id {request.id:016x} was never drawn")
    tx.prefetch([(TENANT, (request.tenant,)), (RING_KEY, (request.id,))])
    tenant = tx.get(TENANT, (request.tenant,))
    if tenant is None:
        raise InvalidArgument(f"there is no tenant {request.tenant}")
    if tenant.ring_key != request.instead_of:
        return tenant.ring_key
    if tx.get(RING_KEY, (request.id,)) is not None:
        raise NameExists(f"ring key {request.id:016x}")
    tx.emit(RingKeyMade(request.id, request.tenant, request.wrapped, request.master, tx.at_ns))
    return request.id


def rewrap_ring_keys(request: RewrapRingKeys, tx: Tx) -> int:
    tx.prefetch([(RING_KEY, (ring_key,)) for ring_key, *_ in request.items])
    changed = 0
    for ring_key, before, wrapped, master in request.items:
        row = tx.get(RING_KEY, (ring_key,))
        if row is not None and row.wrapped == before:
            tx.emit(RingKeyRewrapped(ring_key, wrapped, master))
            changed += 1
    return changed


COMMANDS: CommandTable = {
    DrawRingKeyId: draw_ring_key_id,
    AddRingKey: add_ring_key,
    RewrapRingKeys: rewrap_ring_keys,
}
"""The commands of this module and the functions that run them, for the committer."""
