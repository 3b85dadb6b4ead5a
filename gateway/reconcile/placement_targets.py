"""Which backends should hold a block, in the journal's ids: `placement.desired`, cached for each policy and set.

The topology may be replaced at any time. So a worker calls `refresh` before each step, which drops what was cached
under an older topology. A fingerprint identifies everything that the answers depend on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection

from gateway.blocks.protocols import TableReader
from gateway.placement.desired import StoredBlock, desired
from gateway.topology import Topology

FINGERPRINT_BYTES = 16


class PlacementTargets:
    """For one thread."""

    def __init__(self, store: TableReader, topology: Callable[[], Topology]) -> None:
        self._store = store
        self._topology = topology
        self._seen: tuple[object, ...] = ()
        self._known: dict[tuple[int, tuple[int, ...]], frozenset[int]] = {}
        self.names: dict[int, str] = {}
        """The names of all backends that the journal knows, by id."""
        self.lost: frozenset[int] = frozenset()
        """The ids of the backends whose copies are lost for good."""
        self.fingerprint = b""
        self._ids: dict[str, int] = {}
        self.policies: dict[int, str] = {}
        """The names of all policies that the journal knows, by id."""

    def refresh(self) -> bool:
        """Load the topology, the backends and the policies of now. Returns False while the topology names a backend
        that the journal does not know: then no other method may be called."""
        self._now = self._topology()
        backends = self._store.query("SELECT name, id, lost FROM backend")
        policies = self._store.query("SELECT name, id FROM policy")
        seen = (self._now, tuple(backends), tuple(policies))
        if seen != self._seen:
            self._seen = seen
            self._known.clear()
            self._ids = {name: number for name, number, _ in backends}
            self.names = {number: name for name, number, _ in backends}
            self.lost = frozenset(number for _, number, lost in backends if lost)
            self.policies = {number: name for name, number in policies}
            self.fingerprint = fingerprint(self._now, [self.names[each] for each in self.lost])
        return self._ids.keys() >= self._now.backends.keys()

    def desired(self, policy: int, held: tuple[int, ...]) -> frozenset[int]:
        """Return the backends that should hold a block that was written under *policy* and is held by *held*."""
        result = self._known.get((policy, held))
        if result is None:
            block = StoredBlock(self.policies.get(policy, ""), frozenset(self.names[each] for each in held))
            lost = [self.names[each] for each in self.lost]
            wanted = desired(block, self._now, lost)
            result = self._known[(policy, held)] = frozenset(self._ids[name] for name in wanted)
        return result

    @property
    def within_seconds(self) -> float:
        """The shortest recovery point that a policy promises."""
        return min(policy.within_seconds for policy in self._now.policies.values())

    @property
    def recheck_seconds(self) -> float:
        """How long the old copies of a moved block are kept before the new ones are checked again."""
        return self._now.recheck_seconds

    def is_local(self, backend_id: int) -> bool:
        """Whether the backend is a folder of a local file system."""
        backend = self._now.backends.get(self.names.get(backend_id, ""))
        return backend is not None and backend.s3 is None


def fingerprint(topology: Topology, lost: Collection[str]) -> bytes:
    """Return a hash of all inputs of `desired` other than the block. It also covers `recheck_seconds`, so that blocks
    whose old copies wait are examined again when that changes."""
    policies = {name: sorted(policy.keep) for name, policy in topology.policies.items()}
    backends = {name: place.drain for name, place in topology.backends.items()}
    text = json.dumps([policies, backends, sorted(lost), topology.recheck_seconds], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=FINGERPRINT_BYTES).digest()
